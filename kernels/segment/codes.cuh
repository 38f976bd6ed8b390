#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/segment/vectors.cuh"

// Weights of eight bits, from codes to numbers of the type of the rows, without loss.
namespace lora_bench::kernels {

// Of either format: WeightScales says which.
struct EightBits {
  std::uint8_t bits;
};

// Four codes as fp16; an instruction of sm_89 and up for each two.
__device__ inline uint2 halves_of_e4m3(std::uint32_t codes) {
  uint2 halves;
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, low;\ncvt.rn.f16x2.e4m3x2 %1, high;\n}"
      : "=r"(halves.x), "=r"(halves.y)
      : "r"(codes));
  return halves;
}

// Four codes as fp16; e5m2 is the upper half of a number of it.
template <bool kE5m2>
__device__ inline uint2 halves_of(std::uint32_t codes) {
  if constexpr (kE5m2) {
    return {__byte_perm(codes, 0, 0x1404), __byte_perm(codes, 0, 0x3424)};
  } else {
    return halves_of_e4m3(codes);
  }
}

// Two numbers of fp16 as T, which holds all of eight bits.
template <typename T>
__device__ inline std::uint32_t from_halves(std::uint32_t halves) {
  if constexpr (std::is_same_v<T, __half>) {
    return halves;
  } else {
    const float2 numbers = floats_of<__half>(halves);
    std::uint32_t both = 0;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(numbers.y), "f"(numbers.x));
    return both;
  }
}

template <typename T, bool kE5m2>
__device__ inline uint2 widen_four(std::uint32_t codes) {
  const uint2 halves = halves_of<kE5m2>(codes);
  return {from_halves<T>(halves.x), from_halves<T>(halves.y)};
}

}  // namespace lora_bench::kernels
