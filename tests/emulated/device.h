#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <vector_functions.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "emulated/instructions.h"
#include "emulated/launch.h"

// What the CUDA compiler gives a kernel, for a compiler that does not; read before every kernel.

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __launch_bounds__
#undef __grid_constant__
#undef __forceinline__
#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#define __grid_constant__
#define __forceinline__ inline
// After the headers of CUDA, which have other code for a device.
#define __CUDA_ARCH__ 900
#define __CUDA_ARCH_FEAT_SM90_ALL 1

using std::isfinite;

template <typename A, typename B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  return b < a ? static_cast<std::common_type_t<A, B>>(b)
               : static_cast<std::common_type_t<A, B>>(a);
}
template <typename A, typename B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  return a < b ? static_cast<std::common_type_t<A, B>>(b)
               : static_cast<std::common_type_t<A, B>>(a);
}

[[noreturn]] inline void __trap() { lora_bench::emulated::trap("__trap"); }
inline void __syncthreads() { lora_bench::emulated::meet_in_block(); }
inline void __syncwarp(unsigned = ~0U) { lora_bench::emulated::meet_in_warp({}); }
inline void __threadfence() {}

template <typename T>
T __shfl_sync(unsigned, T value, int from) {
  return lora_bench::emulated::shuffled(value, static_cast<unsigned>(from) % 32);
}
template <typename T>
T __shfl_up_sync(unsigned, T value, unsigned by) {
  const unsigned lane = lora_bench::emulated::own_lane();
  return lora_bench::emulated::shuffled(value, lane < by ? lane : lane - by);
}
template <typename T>
T __shfl_down_sync(unsigned, T value, unsigned by) {
  const unsigned lane = lora_bench::emulated::own_lane();
  return lora_bench::emulated::shuffled(value, lane + by > 31 ? lane : lane + by);
}
template <typename T>
T __shfl_xor_sync(unsigned, T value, int by) {
  return lora_bench::emulated::shuffled(
      value, lora_bench::emulated::own_lane() ^ static_cast<unsigned>(by));
}
inline unsigned __ballot_sync(unsigned, bool mine) {
  const auto* const all = lora_bench::emulated::meet_in_warp({{mine ? 1U : 0U}});
  unsigned ballot = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    ballot |= all[lane].words[0] << lane;
  }
  return ballot;
}
inline int __any_sync(unsigned lanes, int mine) {
  return __ballot_sync(lanes, mine != 0) != 0 ? 1 : 0;
}
inline int __reduce_add_sync(unsigned, int value) {
  const auto* const all = lora_bench::emulated::meet_in_warp({{static_cast<std::uint32_t>(value)}});
  int sum = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    sum += static_cast<int>(all[lane].words[0]);
  }
  return sum;
}
inline int __reduce_max_sync(unsigned, int value) {
  const auto* const all = lora_bench::emulated::meet_in_warp({{static_cast<std::uint32_t>(value)}});
  int most = value;
  for (unsigned lane = 0; lane < 32; ++lane) {
    const int other = static_cast<int>(all[lane].words[0]);
    most = most < other ? other : most;
  }
  return most;
}

template <typename T, typename V>
T atomicAdd(T* at, V value) {
  const T before = *at;
  *at = before + static_cast<T>(value);
  return before;
}
template <typename T>
T atomicMax(T* at, T value) {
  const T before = *at;
  *at = before < value ? value : before;
  return before;
}
template <typename T>
T atomicOr(T* at, T value) {
  const T before = *at;
  *at = before | value;
  return before;
}
template <typename T>
T atomicCAS(T* at, T expected, T wanted) {
  const T before = *at;
  *at = before == expected ? wanted : before;
  return before;
}
template <typename T>
T __ldg(const T* at) {
  return *at;
}
template <typename T>
T __ldcg(const T* at) {
  return *at;
}
template <typename T>
void __stcg(T* at, T value) {
  *at = value;
}
inline std::size_t __cvta_generic_to_shared(const void* at) {
  return lora_bench::emulated::to_shared(at);
}

inline int __popc(unsigned bits) { return std::popcount(bits); }
inline int __ffs(unsigned bits) { return bits == 0 ? 0 : std::countr_zero(bits) + 1; }
inline int __clz(unsigned bits) { return std::countl_zero(bits); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline std::uint32_t __float_as_uint(float value) { return std::bit_cast<std::uint32_t>(value); }
inline float __uint_as_float(std::uint32_t bits) { return std::bit_cast<float>(bits); }
inline std::uint32_t __byte_perm(std::uint32_t low, std::uint32_t high, std::uint32_t which) {
  const std::uint64_t both = std::uint64_t{high} << 32 | low;
  std::uint32_t bytes = 0;
  for (unsigned i = 0; i < 4; ++i) {
    bytes |= static_cast<std::uint32_t>(both >> (which >> 4 * i & 7) * 8 & 0xFF) << 8 * i;
  }
  return bytes;
}
