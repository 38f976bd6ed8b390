#ifdef LORA_BENCH_HAVE_CUDA

#include "device/cuda_graph.h"

namespace lora_bench {

CudaGraphExec record_graph(const std::function<void()>& enqueue, cudaStream_t stream) {
  // Thread-local: what other threads do with CUDA meanwhile is their own.
  LORA_BENCH_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  cudaGraph_t recorded = nullptr;
  try {
    enqueue();
  } catch (...) {
    static_cast<void>(cudaStreamEndCapture(stream, &recorded));
    cudaGetLastError();
    const CudaGraph discarded(recorded);
    throw;
  }
  LORA_BENCH_CUDA_CHECK(cudaStreamEndCapture(stream, &recorded));
  const CudaGraph graph(recorded);
  cudaGraphExec_t executable = nullptr;
  LORA_BENCH_CUDA_CHECK(cudaGraphInstantiate(&executable, graph.get(), 0));
  CudaGraphExec owned(executable);
  LORA_BENCH_CUDA_CHECK(cudaGraphUpload(owned.get(), stream));
  LORA_BENCH_CUDA_CHECK(cudaStreamSynchronize(stream));
  return owned;
}

}  // namespace lora_bench

#endif
