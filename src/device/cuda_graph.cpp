#ifdef LORA_BENCH_HAVE_CUDA

#include "device/cuda_handles.h"

#include "device/gpu_group.h"

namespace lora_bench {
namespace {

// The streams that are being captured; what was captured goes where nobody ends it.
class Captures {
 public:
  explicit Captures(std::span<const cudaStream_t> streams) : streams_(streams) {
    for (cudaStream_t stream : streams_) {
      // Thread-local: what other threads do with CUDA meanwhile is their own.
      const cudaError_t result = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
      if (result != cudaSuccess) {
        discard();
      }
      LORA_BENCH_CUDA_CHECK(result);
      ++open_;
    }
  }
  ~Captures() { discard(); }
  Captures(const Captures&) = delete;
  Captures& operator=(const Captures&) = delete;

  [[nodiscard]] std::vector<CudaGraph> end() {
    std::vector<CudaGraph> graphs;
    while (first_ < open_) {
      cudaGraph_t recorded = nullptr;
      LORA_BENCH_CUDA_CHECK(cudaStreamEndCapture(streams_[first_++], &recorded));
      graphs.emplace_back(recorded);
    }
    return graphs;
  }

 private:
  void discard() {
    for (; first_ < open_; ++first_) {
      cudaGraph_t recorded = nullptr;
      static_cast<void>(cudaStreamEndCapture(streams_[first_], &recorded));
      cudaGetLastError();
      const CudaGraph discarded(recorded);
    }
  }

  std::span<const cudaStream_t> streams_;
  std::size_t first_ = 0, open_ = 0;  // of the streams, which capture still
};

CudaGraphExec instantiated(const CudaGraph& graph, cudaStream_t stream) {
  cudaGraphExec_t executable = nullptr;
  LORA_BENCH_CUDA_CHECK(cudaGraphInstantiate(&executable, graph.get(), 0));
  CudaGraphExec owned(executable);
  LORA_BENCH_CUDA_CHECK(cudaGraphUpload(owned.get(), stream));
  LORA_BENCH_CUDA_CHECK(cudaStreamSynchronize(stream));
  return owned;
}

std::vector<CudaGraph> captured(const std::function<void()>& enqueue,
                                std::span<const cudaStream_t> streams) {
  Captures captures(streams);
  enqueue();
  return captures.end();
}

}  // namespace

CudaRecording::CudaRecording(const std::function<void()>& enqueue, cudaStream_t stream)
    : graph_(std::move(captured(enqueue, {&stream, 1}).front())),
      executable_(instantiated(graph_, stream)) {}

void CudaRecording::enqueue(cudaStream_t stream) const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaGraph_t into = nullptr;
  const cudaGraphNode_t* before = nullptr;
  std::size_t count = 0;
#if CUDART_VERSION >= 13000
  const cudaGraphEdgeData* edges = nullptr;
  LORA_BENCH_CUDA_CHECK(
      cudaStreamGetCaptureInfo(stream, &status, nullptr, &into, &before, &edges, &count));
#else
  LORA_BENCH_CUDA_CHECK(cudaStreamGetCaptureInfo(stream, &status, nullptr, &into, &before, &count));
#endif
  if (status != cudaStreamCaptureStatusActive) {
    LORA_BENCH_CUDA_CHECK(cudaGraphLaunch(executable_.get(), stream));
    return;
  }
  cudaGraphNode_t node = nullptr;
  LORA_BENCH_CUDA_CHECK(cudaGraphAddChildGraphNode(&node, into, before, count, graph_.get()));
#if CUDART_VERSION >= 13000
  LORA_BENCH_CUDA_CHECK(cudaStreamUpdateCaptureDependencies(stream, &node, nullptr, 1,
                                                            cudaStreamSetCaptureDependencies));
#else
  LORA_BENCH_CUDA_CHECK(
      cudaStreamUpdateCaptureDependencies(stream, &node, 1, cudaStreamSetCaptureDependencies));
#endif
}

CudaGraphExec record_graph(const std::function<void()>& enqueue, cudaStream_t stream) {
  return instantiated(captured(enqueue, {&stream, 1}).front(), stream);
}

std::vector<CudaGraphExec> record_graphs(const std::function<void()>& enqueue,
                                         std::span<const cudaStream_t> streams) {
  std::vector<CudaGraphExec> executables;
  for (const CudaGraph& graph : captured(enqueue, streams)) {
    const CurrentGpu current(static_cast<int>(executables.size()));
    executables.push_back(instantiated(graph, streams[executables.size()]));
  }
  return executables;
}

}  // namespace lora_bench

#endif
