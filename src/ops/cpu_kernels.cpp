#include "ops/cpu_kernels.h"

#include <string_view>

namespace lora_bench {
namespace {

#if defined(__x86_64__)
bool has_avx2() {
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
         __builtin_cpu_supports("f16c") != 0;
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") != 0 &&
         __builtin_cpu_supports("avx512bw") != 0;
}
#endif

}  // namespace

const CpuKernels* cpu_kernels(const char* name) {
  const std::string_view wanted = name;
  if (wanted == "baseline") {
    return &baseline::kernels();
  }
#if defined(__x86_64__)
  if (wanted == "avx2" && has_avx2()) {
    return &avx2::kernels();
  }
  if (wanted == "avx512" && has_avx512()) {
    return &avx512::kernels();
  }
#endif
  return nullptr;
}

const CpuKernels& cpu_kernels() {
  for (const char* name : {"avx512", "avx2"}) {
    if (const CpuKernels* kernels = cpu_kernels(name)) {
      return *kernels;
    }
  }
  return baseline::kernels();
}

}  // namespace lora_bench
