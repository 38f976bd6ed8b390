#pragma once

#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "device/cuda_check.h"

namespace lora_bench {

// Owners of CUDA objects: move-only, released in the destructor. Only .cpp files include this.

template <typename Handle, cudaError_t (*kDestroy)(Handle)>
class CudaHandle {
 public:
  CudaHandle() = default;
  explicit CudaHandle(Handle handle) : handle_(handle) {}
  ~CudaHandle() {
    if (handle_ != nullptr) {
      LORA_BENCH_CUDA_REPORT(kDestroy(handle_));
    }
  }
  CudaHandle(CudaHandle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  CudaHandle& operator=(CudaHandle&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  CudaHandle(const CudaHandle&) = delete;
  CudaHandle& operator=(const CudaHandle&) = delete;

  [[nodiscard]] Handle get() const { return handle_; }

 private:
  Handle handle_ = nullptr;
};

using CudaStream = CudaHandle<cudaStream_t, cudaStreamDestroy>;
using CudaEvent = CudaHandle<cudaEvent_t, cudaEventDestroy>;
using CudaGraph = CudaHandle<cudaGraph_t, cudaGraphDestroy>;
using CudaGraphExec = CudaHandle<cudaGraphExec_t, cudaGraphExecDestroy>;

// Non-blocking: nothing waits for the legacy default stream, and nothing of ours holds it.
[[nodiscard]] inline CudaStream make_cuda_stream() {
  cudaStream_t stream = nullptr;
  LORA_BENCH_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return CudaStream(stream);
}

[[nodiscard]] inline CudaEvent make_cuda_event() {
  cudaEvent_t event = nullptr;
  LORA_BENCH_CUDA_CHECK(cudaEventCreate(&event));
  return CudaEvent(event);
}

// What `enqueue` puts on `stream`, as a graph that is ready to be launched. Kernels must have been
// launched once before: loading them cannot be recorded.
[[nodiscard]] CudaGraphExec record_graph(const std::function<void()>& enqueue, cudaStream_t stream);
// The same, to be put on streams again and again, those that are themselves being recorded too, of
// which it becomes a part: a graph may not be launched there.
class CudaRecording {
 public:
  CudaRecording(const std::function<void()>& enqueue, cudaStream_t stream);
  void enqueue(cudaStream_t stream) const;

 private:
  CudaGraph graph_;
  CudaGraphExec executable_;
};
// What it puts on the streams of several GPUs, a graph for each: GPU i has stream i.
[[nodiscard]] std::vector<CudaGraphExec> record_graphs(const std::function<void()>& enqueue,
                                                       std::span<const cudaStream_t> streams);

}  // namespace lora_bench
