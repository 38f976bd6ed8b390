#include "ops/cpu_kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <string_view>

namespace lora_bench {
namespace {

#if defined(__x86_64__)
// clang 14 knows no "f16c" in __builtin_cpu_supports.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

bool has_avx2() {
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 && has_f16c();
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") != 0 &&
         __builtin_cpu_supports("avx512bw") != 0;
}
#endif

const CpuKernels& widest_here() {
  for (const char* name : {"avx512", "avx2"}) {
    if (const CpuKernels* kernels = cpu_kernels(name)) {
      return *kernels;
    }
  }
  return baseline::kernels();
}

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

// Asked once: in a virtual machine CPUID traps and costs microseconds, more than a small kernel.
const CpuKernels& cpu_kernels() {
  static const CpuKernels& widest = widest_here();
  return widest;
}

}  // namespace lora_bench
