#include "device/side_stream.h"

#include "core/error.h"
#include "device/facts.h"
#ifdef LORA_BENCH_HAVE_CUDA
#include "device/cuda_handles.h"
#endif

namespace lora_bench {

#ifdef LORA_BENCH_HAVE_CUDA

namespace {

// Its blocks come first where both streams have some to start: what runs beside the base is short.
CudaStream make_urgent_stream() {
  int least = 0;
  int greatest = 0;
  LORA_BENCH_CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  cudaStream_t stream = nullptr;
  LORA_BENCH_CUDA_CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest));
  return CudaStream(stream);
}

CudaEvent make_order_event() {
  cudaEvent_t event = nullptr;
  LORA_BENCH_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return CudaEvent(event);
}

}  // namespace

struct SideStream::State {
  CudaStream stream = make_urgent_stream();
  CudaEvent forked = make_order_event();
  CudaEvent joined = make_order_event();
};

SideStream::SideStream(Space space)
    : state_(space == Space::kDevice ? std::make_unique<State>() : nullptr) {}

void* SideStream::fork(void* stream) {
  if (!state_) {
    return stream;
  }
  LORA_BENCH_CUDA_CHECK(cudaEventRecord(state_->forked.get(), static_cast<cudaStream_t>(stream)));
  LORA_BENCH_CUDA_CHECK(cudaStreamWaitEvent(state_->stream.get(), state_->forked.get(), 0));
  return state_->stream.get();
}

void SideStream::join(void* stream) {
  if (state_) {
    LORA_BENCH_CUDA_CHECK(cudaEventRecord(state_->joined.get(), state_->stream.get()));
    LORA_BENCH_CUDA_CHECK(
        cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), state_->joined.get(), 0));
  }
}

#else

struct SideStream::State {};

SideStream::SideStream(Space space) {
  if (space == Space::kDevice) {
    throw EnvironmentError(why_no_gpu());
  }
}
void* SideStream::fork(void* stream) { return stream; }
void SideStream::join(void* /*stream*/) {}

#endif

SideStream::~SideStream() = default;

}  // namespace lora_bench
