#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

// Loads and stores of one element, computing in fp32. Stores round to nearest even.
namespace lora_bench::kernels {

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ inline float to_float(__half value) { return __half2float(value); }
// Numbers of eight bits, of A and B alone. e4m3 has no infinity.
struct E4m3 {
  std::uint8_t bits;
};
struct E5m2 {
  std::uint8_t bits;
};

// By shifts, which every architecture has: the fields go where fp32 has them, and a power of two
// makes up for the other bias, of subnormal numbers too.
__device__ inline float to_float(E4m3 value) {
  const std::uint32_t magnitude = value.bits & 0x7fU;
  const float number = __uint_as_float(magnitude << 20U) * 0x1p120F;
  const std::uint32_t bits = magnitude == 0x7fU ? 0x7fffffffU : __float_as_uint(number);
  return __uint_as_float(bits | (value.bits & 0x80U) << 24U);
}
// The upper half of an fp16 number.
__device__ inline float to_float(E5m2 value) {
  return __half2float(__ushort_as_half(static_cast<std::uint16_t>(value.bits << 8U)));
}

template <typename T>
constexpr bool kIsEightBits = sizeof(T) == 1;

template <typename T>
__device__ inline T from_float(float value);
template <>
__device__ inline float from_float<float>(float value) {
  return value;
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}
template <>
__device__ inline __half from_float<__half>(float value) {
  return __float2half_rn(value);
}

}  // namespace lora_bench::kernels
