#pragma once

#include <cstdint>

#include "kernels/dtype.cuh"

// Loads of up to 16 bytes of one row, as bits. Elements at or beyond `end` are not read: they are
// zeros.
namespace lora_bench::kernels {

template <typename T>
__device__ inline std::uint32_t bits_of(T value) {
  static_assert(sizeof(T) == 2);
  return *reinterpret_cast<const std::uint16_t*>(&value);
}

template <typename T>
__device__ inline std::uint32_t load_pair(const T* row, std::int64_t at, std::int64_t end) {
  std::uint32_t pair = 0;
  if (at < end) {
    pair = bits_of(__ldg(row + at));
  }
  if (at + 1 < end) {
    pair |= bits_of(__ldg(row + at + 1)) << 16;
  }
  return pair;
}

// Eight elements from `at` on. kVectors: rows start on 16 bytes and `at` is a multiple of 8.
template <bool kVectors, typename T>
__device__ inline uint4 load_eight(const T* row, std::int64_t at, std::int64_t end) {
  if (kVectors && at + 8 <= end) {
    return __ldg(reinterpret_cast<const uint4*>(row + at));
  }
  return {load_pair(row, at, end), load_pair(row, at + 2, end), load_pair(row, at + 4, end),
          load_pair(row, at + 6, end)};
}

// The same of a row whose length `end` is a multiple of 8 if kVectors.
template <bool kVectors, typename T>
__device__ inline uint4 load_eight_of_whole(const T* row, std::int64_t at, std::int64_t end) {
  if constexpr (kVectors) {
    return at < end ? __ldg(reinterpret_cast<const uint4*>(row + at)) : uint4{};
  } else {
    return load_eight<false>(row, at, end);
  }
}

// Four elements from `at` on. kVectors: rows start on 8 bytes and `at` is a multiple of 4.
template <bool kVectors, typename T>
__device__ inline uint2 load_four(const T* row, std::int64_t at, std::int64_t end) {
  if (kVectors && at + 4 <= end) {
    return __ldg(reinterpret_cast<const uint2*>(row + at));
  }
  return {load_pair(row, at, end), load_pair(row, at + 2, end)};
}
template <bool kVectors>
__device__ inline float4 load_four(const float* row, std::int64_t at, std::int64_t end) {
  if (kVectors && at + 4 <= end) {
    return __ldg(reinterpret_cast<const float4*>(row + at));
  }
  return {at < end ? __ldg(row + at) : 0.0F, at + 1 < end ? __ldg(row + at + 1) : 0.0F,
          at + 2 < end ? __ldg(row + at + 2) : 0.0F, at + 3 < end ? __ldg(row + at + 3) : 0.0F};
}

template <typename T>
__device__ inline float2 floats_of(std::uint32_t pair);
template <>
__device__ inline float2 floats_of<__nv_bfloat16>(std::uint32_t pair) {
  return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000U)};
}
template <>
__device__ inline float2 floats_of<__half>(std::uint32_t pair) {
  return __half22float2(*reinterpret_cast<const __half2*>(&pair));
}

template <typename T>
__device__ inline void unpack(const uint4& bits, float (&to)[8]) {
  const std::uint32_t pairs[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 both = floats_of<T>(pairs[i]);
    to[2 * i] = both.x;
    to[2 * i + 1] = both.y;
  }
}

// kCount (1 or 8) elements of a row as floats; those at or beyond `end` are zeros and not read.
template <int kCount, typename T>
__device__ inline void load_floats(const T* row, std::int64_t at, std::int64_t end,
                                   float (&to)[kCount]) {
  if constexpr (kCount == 1) {
    to[0] = at < end ? to_float(__ldg(row + at)) : 0.0F;
  } else if constexpr (sizeof(T) == 4) {
    const float4 low = load_four<true>(row, at, end);
    const float4 high = load_four<true>(row, at + 4, end);
    to[0] = low.x;
    to[1] = low.y;
    to[2] = low.z;
    to[3] = low.w;
    to[4] = high.x;
    to[5] = high.y;
    to[6] = high.z;
    to[7] = high.w;
  } else {
    unpack<T>(load_eight<true>(row, at, end), to);
  }
}

}  // namespace lora_bench::kernels
