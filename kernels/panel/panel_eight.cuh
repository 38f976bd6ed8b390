#pragma once

#include <cstdint>

#include "kernels/dtype.cuh"
#include "kernels/segment/fragments.cuh"
#include "kernels/segment/vectors.cuh"

// What becomes of eight neighbouring sums of a row of expand.
namespace lora_bench::kernels {

// Two numbers, each rounded once.
template <typename T>
__device__ inline std::uint32_t packed(float low, float high) {
  return bits_of(from_float<T>(low)) | bits_of(from_float<T>(high)) << 16;
}
template <>
__device__ inline std::uint32_t packed<__nv_bfloat16>(float low, float high) {
  std::uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

// Scaled, with the bias and y added where there are any: each step rounds to fp32, the last to T.
// `sum_of(e)` has them, `y_of()` y.
template <typename T, typename SumOf, typename YOf>
__device__ inline uint4 finish_eight(float scale, bool has_bias, const float (&of_bias)[8],
                                     bool add_inputs, const SumOf& sum_of, const YOf& y_of) {
  float values[8];
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    values[e] = __fmul_rn(scale, sum_of(e));
  }
  if (has_bias) {
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      values[e] = __fadd_rn(values[e], of_bias[e]);
    }
  }
  if (add_inputs) {
    float of[8];
    unpack<T>(y_of(), of);
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      values[e] = __fadd_rn(values[e], of[e]);
    }
  }
  return {packed<T>(values[0], values[1]), packed<T>(values[2], values[3]),
          packed<T>(values[4], values[5]), packed<T>(values[6], values[7])};
}

}  // namespace lora_bench::kernels
