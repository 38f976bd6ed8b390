#ifdef LORA_BENCH_HAVE_CUDA

#include <fmt/format.h>

#include "core/error.h"
#include "core/units.h"
#include "device/cuda_handles.h"
#include "device/facts.h"
#include "device/gpu_group.h"
#include "device/memory.h"
#include "device/pinned_pieces.h"

namespace lora_bench {
namespace {

// Copies wait for all work of the device, on whatever stream, and end before they return. A plain
// cudaMemcpy does neither: it ignores non-blocking streams, and its last bytes may still be on
// their way when a kernel on such a stream starts.
class CudaMemory final : public Memory {
 public:
  explicit CudaMemory(int gpu) : gpu_(gpu) {
    const CurrentGpu current(gpu_);
    stream_ = make_cuda_stream();
    events_ = {make_cuda_event(), make_cuda_event()};
  }

  [[nodiscard]] Space space() const override { return Space::kDevice; }

  [[nodiscard]] void* allocate(std::int64_t bytes) override {
    if (bytes < 0) {
      throw CaseError(
          fmt::format("cannot allocate {} bytes of device memory: negative size", bytes));
    }
    const CurrentGpu current(gpu_);
    void* address = nullptr;
    const cudaError_t result =
        cudaMalloc(&address, static_cast<std::size_t>(bytes > 0 ? bytes : 1));
    if (result == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      throw CaseError(fmt::format("no room for {} ({} bytes) of device memory; {} are free",
                                  format_bytes(static_cast<double>(bytes)), bytes,
                                  format_bytes(static_cast<double>(available_bytes()))));
    }
    check_cuda(result, "cudaMalloc", __FILE__, __LINE__);
    return address;
  }

  void release(void* address) noexcept override { LORA_BENCH_CUDA_REPORT(cudaFree(address)); }

  void copy_in(void* to, const void* from, std::int64_t bytes) override {
    const CurrentGpu current(gpu_);
    if (bytes >= PinnedPieces::kFewestBytes) {
      synchronize();
      if (pieces_.copy_in(to, from, bytes, stream_.get(), events_)) {
        return;
      }
    }
    copy(to, from, bytes, cudaMemcpyHostToDevice);
  }

  void copy_out(void* to, const void* from, std::int64_t bytes) override {
    const CurrentGpu current(gpu_);
    if (bytes >= PinnedPieces::kFewestBytes) {
      synchronize();
      if (pieces_.copy_out(to, from, bytes, stream_.get(), events_)) {
        return;
      }
    }
    copy(to, from, bytes, cudaMemcpyDeviceToHost);
  }

  void copy_within(void* to, const void* from, std::int64_t bytes) override {
    copy(to, from, bytes, cudaMemcpyDeviceToDevice);
  }

  void fill(void* to, std::byte value, std::int64_t bytes) override {
    if (bytes > 0) {
      const CurrentGpu current(gpu_);
      synchronize();
      LORA_BENCH_CUDA_CHECK(cudaMemsetAsync(to, std::to_integer<int>(value),
                                            static_cast<std::size_t>(bytes), stream_.get()));
      LORA_BENCH_CUDA_CHECK(cudaStreamSynchronize(stream_.get()));
    }
  }

  void enqueue_copy(void* stream, void* to, const void* from, std::int64_t bytes) override {
    if (bytes > 0) {
      const CurrentGpu current(gpu_);
      LORA_BENCH_CUDA_CHECK(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes),
                                            cudaMemcpyDeviceToDevice,
                                            static_cast<cudaStream_t>(stream)));
    }
  }

  void synchronize() override {
    const CurrentGpu current(gpu_);
    LORA_BENCH_CUDA_CHECK(cudaDeviceSynchronize());
  }

  void enqueue_and_wait(const std::function<void(void* stream)>& enqueue) override {
    const CurrentGpu current(gpu_);
    synchronize();
    enqueue(stream_.get());
    synchronize();
  }

  [[nodiscard]] std::int64_t available_bytes() const override {
    const CurrentGpu current(gpu_);
    std::size_t free = 0;
    std::size_t total = 0;
    LORA_BENCH_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return static_cast<std::int64_t>(free);
  }

  [[nodiscard]] std::function<void()> record(std::function<void(void* stream)> enqueue) override {
    const CurrentGpu current(gpu_);
    synchronize();
    const auto graph = std::make_shared<CudaGraphExec>(
        record_graph([&] { enqueue(stream_.get()); }, stream_.get()));
    return [this, graph] {
      const CurrentGpu here(gpu_);
      synchronize();
      LORA_BENCH_CUDA_CHECK(cudaGraphLaunch(graph->get(), stream_.get()));
      LORA_BENCH_CUDA_CHECK(cudaStreamSynchronize(stream_.get()));
    };
  }

 private:
  void copy(void* to, const void* from, std::int64_t bytes, cudaMemcpyKind kind) {
    if (bytes > 0) {
      const CurrentGpu current(gpu_);
      synchronize();
      LORA_BENCH_CUDA_CHECK(
          cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), kind, stream_.get()));
      LORA_BENCH_CUDA_CHECK(cudaStreamSynchronize(stream_.get()));
    }
  }

  int gpu_;
  CudaStream stream_;
  PinnedPieces& pieces_ = PinnedPieces::of_process();
  PinnedPieces::Events events_;
};

}  // namespace

std::unique_ptr<Memory> make_device_memory(int gpu) {
  if (const std::string reason = why_no_gpu(); !reason.empty()) {
    throw EnvironmentError(reason);
  }
  return std::make_unique<CudaMemory>(gpu);
}

}  // namespace lora_bench

#endif
