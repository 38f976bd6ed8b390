#include "ops/auto_choice.h"

#ifdef LORA_BENCH_HAVE_CUDA
#include "device/cuda_check.h"
#include "kernels/panel/panel.h"
#else
#include "core/error.h"
#endif

namespace lora_bench {

#ifdef LORA_BENCH_HAVE_CUDA

AutoDevice auto_device(const DeviceFacts& facts) {
  int ordinal = 0;
  LORA_BENCH_CUDA_CHECK(cudaGetDevice(&ordinal));
  const auto bytes_of = [&](cudaDeviceAttr attribute) {
    int bytes = 0;
    LORA_BENCH_CUDA_CHECK(cudaDeviceGetAttribute(&bytes, attribute, ordinal));
    return bytes;
  };
  AutoDevice device;
  device.compute_capability = facts.compute_capability;
  device.multiprocessors = facts.multiprocessors;
  device.shared_bytes = bytes_of(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  device.multiprocessor_bytes = bytes_of(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  device.groups = kernels::panel_has_groups();
  return device;
}

#else

AutoDevice auto_device(const DeviceFacts&) { throw EnvironmentError(why_no_gpu()); }

#endif

}  // namespace lora_bench
