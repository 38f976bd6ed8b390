#pragma once

// The sum of chains, or of what blocks have made of them: neighbours in pairs, the pairs in pairs,
// and so on. So an aligned run of 1, 2, 4 or 8 chains has a sum that whoever has them can make.
namespace lora_bench::kernels {

__device__ inline float both(float first, float second) { return first + second; }
__device__ inline float4 both(const float4& first, const float4& second) {
  return {first.x + second.x, first.y + second.y, first.z + second.z, first.w + second.w};
}

template <int kParts, typename V>
__device__ inline V add_in_pairs(const V (&part)[kParts]) {
  static_assert(kParts > 0 && (kParts & (kParts - 1)) == 0);
  V sum[kParts];
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    sum[i] = part[i];
  }
#pragma unroll
  for (int left = kParts / 2; left > 0; left /= 2) {
#pragma unroll
    for (int i = 0; i < left; ++i) {
      sum[i] = both(sum[2 * i], sum[2 * i + 1]);
    }
  }
  return sum[0];
}

}  // namespace lora_bench::kernels
