#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/dtype.cuh"
#include "kernels/quantise/quantise.h"

namespace lora_bench::kernels {

// A format of eight bits; `kCvt`: the device has an instruction that converts to it (sm_89 and up).
template <bool kE5m2Format, bool kCvtThere>
struct Format {
  static constexpr bool kE5m2 = kE5m2Format;
  static constexpr bool kCvt = kCvtThere;
  static constexpr float kLargest = kE5m2 ? 57344.0F : 448.0F;
};

// To nearest, at a tie to even, and no larger than the largest. By shifts, which every
// architecture has: a subnormal number is a count of steps, of which eight (four) are the least
// normal one.
template <typename F>
__device__ std::uint32_t code_by_shifts(float value) {
  constexpr unsigned kDropped = F::kE5m2 ? 21 : 20;
  constexpr std::uint32_t kBias = F::kE5m2 ? (127 - 15) << 2 : (127 - 7) << 3;
  constexpr float kLeastNormal = F::kE5m2 ? 0x1p-14F : 0x1p-6F;
  constexpr float kSteps = F::kE5m2 ? 0x1p16F : 0x1p9F;
  const std::uint32_t bits = __float_as_uint(value);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  const std::uint32_t sign = bits >> 24U & 0x80U;
  const float size = __uint_as_float(magnitude);
  if (size > F::kLargest) {
    return sign | (F::kE5m2 ? 0x7bU : 0x7eU);
  }
  if (size < kLeastNormal) {
    return sign | static_cast<std::uint32_t>(rintf(size * kSteps));
  }
  const std::uint32_t odd = magnitude >> kDropped & 1U;
  return sign | (((magnitude + (1U << (kDropped - 1U)) - 1U + odd) >> kDropped) - kBias);
}

// Two codes, the first in the lower byte.
template <typename F>
__device__ std::uint32_t two_codes(float first, float second) {
  if constexpr (F::kCvt) {
    std::uint16_t pair = 0;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
    if constexpr (F::kE5m2) {
      asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(second), "f"(first));
    } else {
      asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(second), "f"(first));
    }
#endif
    return pair;
  } else {
    return code_by_shifts<F>(first) | code_by_shifts<F>(second) << 8U;
  }
}

// The scale of numbers of which none is larger than amax.
template <typename F>
__device__ float scale_for(const QuantiseParams& params, float amax) {
  const float held = fmaxf(amax, params.least_amax);
  const float scale = fmaxf(held / F::kLargest, params.least_scale);
  if (!params.power_of_two) {
    return scale;
  }
  constexpr std::uint32_t kFraction = 0x7fffffU;
  return __uint_as_float((__float_as_uint(scale) + kFraction) & ~kFraction);
}

// How numbers of one scale are converted, where the scale is any normal number.
struct AnyScale {
  float scale, inverse;
  bool multiplies;

  __device__ AnyScale(const QuantiseParams& params, float of)
      : scale(of), inverse(1.0F / of), multiplies(params.multiplies) {}
  __device__ float operator()(float value) const {
    return multiplies ? __fmul_rn(value, inverse) : value / scale;
  }
};

// The same results with a product and two or four products-and-sums, which no number leaves for a
// slower way. A quotient that is off by little is corrected to the IEEE quotient by its remainder
// times the rounded inverse. After one correction this holds for every dividend of 8 or 11 bits
// (tests/host/quantise_test.cpp); after two it is a theorem of Markstein. Remainders have the sign
// by which a quotient of -0 stays -0. Where numbers are multiplied, corrections are by -0 and
// change nothing. Where scales are given, numbers are held near the range, so that nothing
// overflows.
template <typename T, bool kGiven>
struct OrdinaryScale {
  float scale, inverse, correction, most;

  __device__ OrdinaryScale(const QuantiseParams& params, float of, float largest)
      : scale(of),
        inverse(1.0F / of),
        correction(params.multiplies ? -0.0F : -inverse),
        most(2 * largest * of) {}
  // Whether no step overflows, and none that counts underflows.
  __device__ static bool holds(float scale) { return scale >= 0x1p-60F && scale <= 0x1p60F; }
  __device__ float operator()(float value) const {
    const float held = kGiven ? fminf(fmaxf(value, -most), most) : value;
    float quotient = __fmul_rn(held, inverse);
    quotient = fmaf(fmaf(quotient, scale, -held), correction, quotient);
    if constexpr (sizeof(T) == sizeof(float)) {
      quotient = fmaf(fmaf(quotient, scale, -held), correction, quotient);
    }
    return quotient;
  }
};

// So many numbers that lie together, read at once, as words: an array of numbers of 16 bits would
// not be kept in registers.
template <typename T, int kNumbers>
struct alignas(kNumbers * sizeof(T)) Vector {
  static constexpr int kCount = kNumbers;
  std::uint32_t words[kNumbers * sizeof(T) / sizeof(std::uint32_t)];

  __device__ float number(int i) const {
    if constexpr (sizeof(T) == sizeof(float)) {
      return __uint_as_float(words[i]);
    } else {
      const std::uint32_t word = words[i / 2];
      if constexpr (std::is_same_v<T, __nv_bfloat16>) {
        return __uint_as_float(i % 2 == 0 ? word << 16U : word & 0xffff0000U);
      } else {
        const auto half = static_cast<unsigned short>(i % 2 == 0 ? word & 0xffffU : word >> 16U);
        return __half2float(__ushort_as_half(half));
      }
    }
  }
};
template <typename T>
struct Vector<T, 1> {
  static constexpr int kCount = 1;
  T only;

  __device__ float number(int) const { return to_float(only); }
};

template <typename V>
__device__ __forceinline__ float most_of(const V& vector, float amax) {
#pragma unroll
  for (int i = 0; i < V::kCount; ++i) {
    amax = fmaxf(amax, fabsf(vector.number(i)));
  }
  return amax;
}

template <typename F, typename V, typename Conversion>
__device__ __forceinline__ void put_codes(const V& from, const Conversion& by,
                                          std::uint8_t* codes) {
  if constexpr (V::kCount == 1) {
    *codes = static_cast<std::uint8_t>(two_codes<F>(by(from.number(0)), 0.0F));
  } else {
    std::uint32_t words[V::kCount / 4];
#pragma unroll
    for (int i = 0; i < V::kCount; i += 4) {
      words[i / 4] = two_codes<F>(by(from.number(i)), by(from.number(i + 1))) |
                     two_codes<F>(by(from.number(i + 2)), by(from.number(i + 3))) << 16U;
    }
    if constexpr (V::kCount == 8) {
      *reinterpret_cast<uint2*>(codes) = {words[0], words[1]};
    } else {
      *reinterpret_cast<std::uint32_t*>(codes) = words[0];
    }
  }
}

}  // namespace lora_bench::kernels
