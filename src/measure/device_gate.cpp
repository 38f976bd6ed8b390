#ifdef LORA_BENCH_HAVE_CUDA

#include "measure/device_gate.h"

#include <atomic>

#include "device/cuda_check.h"
#include "kernels/measure/probes.h"

namespace lora_bench {

struct DeviceGate::Words {
  unsigned open;
  unsigned timed_out;
};

DeviceGate::DeviceGate() {
  void* memory = nullptr;
  LORA_BENCH_CUDA_CHECK(cudaHostAlloc(&memory, sizeof(Words), cudaHostAllocMapped));
  words_ = static_cast<volatile Words*>(memory);
  words_->open = 1;
  words_->timed_out = 0;
}

DeviceGate::~DeviceGate() {
  open();
  LORA_BENCH_CUDA_REPORT(cudaFreeHost(const_cast<Words*>(words_)));
}

void DeviceGate::close(void* stream) {
  constexpr unsigned long long kTimeoutNs = 500'000'000;
  words_->open = 0;
  words_->timed_out = 0;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // With unified addressing the device knows mapped memory by the address of the host.
  LORA_BENCH_CUDA_CHECK(kernels::launch_gate(&words_->open, &words_->timed_out, kTimeoutNs,
                                             static_cast<cudaStream_t>(stream)));
}

void DeviceGate::open() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  words_->open = 1;
}

bool DeviceGate::timed_out() const { return words_->timed_out != 0; }

}  // namespace lora_bench

#endif
