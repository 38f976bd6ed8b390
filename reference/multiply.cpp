#include "reference/multiply.h"

namespace lora_bench::reference {
namespace {

Multiply choose() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return avx512::multiply();
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return avx2::multiply();
  }
#endif
  return baseline::multiply();
}

}  // namespace

const Multiply& multiply() {
  static const Multiply kChosen = choose();
  return kChosen;
}

}  // namespace lora_bench::reference
