#include "kernels/quantise/quantise.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "kernels/dtype.cuh"

namespace lora_bench::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
// Vectors that a thread keeps between the two looks at a group; those behind them are read again.
constexpr int kHeld = 4;
constexpr std::int64_t kMostBlocks = 1 << 16;

// A format of eight bits; `kCvt`: the device has an instruction that converts to it (sm_89 and up).
template <bool kE5m2Format, bool kCvtThere>
struct Format {
  static constexpr bool kE5m2 = kE5m2Format;
  static constexpr bool kCvt = kCvtThere;
  static constexpr float kLargest = kE5m2 ? 57344.0F : 448.0F;
};

// To nearest, at a tie to even; |value| is no more than the largest. By shifts, which every
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
  if (size < kLeastNormal) {
    return sign | static_cast<std::uint32_t>(rintf(size * kSteps));
  }
  const std::uint32_t odd = magnitude >> kDropped & 1U;
  return sign | (((magnitude + (1U << (kDropped - 1U)) - 1U + odd) >> kDropped) - kBias);
}

// Two codes, the first in the lower byte.
template <typename F>
__device__ std::uint32_t two_codes(float first, float second) {
  const float a = fminf(fmaxf(first, -F::kLargest), F::kLargest);
  const float b = fminf(fmaxf(second, -F::kLargest), F::kLargest);
  if constexpr (F::kCvt) {
    std::uint16_t pair = 0;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
    if constexpr (F::kE5m2) {
      asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(b), "f"(a));
    } else {
      asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(b), "f"(a));
    }
#endif
    return pair;
  } else {
    return code_by_shifts<F>(a) | code_by_shifts<F>(b) << 8U;
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

// How numbers of one scale are converted.
struct Conversion {
  float scale, inverse;
  bool multiplies;

  __device__ float of(float value) const { return multiplies ? value * inverse : value / scale; }
};
__device__ Conversion conversion(const QuantiseParams& params, float scale) {
  return {scale, 1.0F / scale, params.multiplies};
}

// So many numbers that lie together, read at once.
template <typename T, int kCount>
struct alignas(kCount * sizeof(T)) Vector {
  T numbers[kCount];

  __device__ float most(float amax) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      amax = fmaxf(amax, fabsf(to_float(numbers[i])));
    }
    return amax;
  }
};

template <typename F, typename T, int kCount>
__device__ void put_codes(const Vector<T, kCount>& from, const Conversion& by,
                          std::uint8_t* codes) {
  if constexpr (kCount == 1) {
    *codes = static_cast<std::uint8_t>(two_codes<F>(by.of(to_float(from.numbers[0])), 0.0F));
  } else {
    std::uint32_t words[kCount / 4];
#pragma unroll
    for (int word = 0; word < kCount / 4; ++word) {
      const T* const four = from.numbers + 4 * word;
      words[word] = two_codes<F>(by.of(to_float(four[0])), by.of(to_float(four[1]))) |
                    two_codes<F>(by.of(to_float(four[2])), by.of(to_float(four[3]))) << 16U;
    }
    if constexpr (kCount == 8) {
      *reinterpret_cast<uint2*>(codes) = {words[0], words[1]};
    } else {
      *reinterpret_cast<std::uint32_t*>(codes) = words[0];
    }
  }
}

// The largest of all threads of a team: part of a warp, a warp, or a whole block.
template <int kTeam>
__device__ float most_of_team(float amax) {
#pragma unroll
  for (int by = (kTeam < kWarp ? kTeam : kWarp) / 2; by > 0; by /= 2) {
    amax = fmaxf(amax, __shfl_xor_sync(0xffffffffU, amax, by));
  }
  if constexpr (kTeam > kWarp) {
    __shared__ float of_warps[kTeam / kWarp];
    __syncthreads();  // those of the group before were read
    if (threadIdx.x % kWarp == 0) {
      of_warps[threadIdx.x / kWarp] = amax;
    }
    __syncthreads();
#pragma unroll
    for (int warp = 0; warp < kTeam / kWarp; ++warp) {
      amax = fmaxf(amax, of_warps[warp]);
    }
  }
  return amax;
}

// A team makes the scale and the codes of one group after the other. All threads of a warp go
// through the same number of groups, those behind the last with nothing to do.
template <typename F, typename T, int kCount, int kTeam>
__global__ void quantise_groups(const __grid_constant__ QuantiseParams params) {
  using V = Vector<T, kCount>;
  constexpr int kTeams = kThreads / kTeam;
  const std::int64_t across = (params.columns + params.group - 1) / params.group;
  const std::int64_t groups = params.rows * across;
  const int lane = static_cast<int>(threadIdx.x) % kTeam;
  for (std::int64_t first = std::int64_t{blockIdx.x} * kTeams; first < groups;
       first += std::int64_t{gridDim.x} * kTeams) {
    const std::int64_t group = first + static_cast<int>(threadIdx.x) / kTeam;
    const bool there = group < groups;
    const std::int64_t row = there ? group / across : 0;
    const std::int64_t column = there ? group % across * params.group : 0;
    const std::int64_t left = params.columns - column;
    const std::int64_t vectors = there ? (left < params.group ? left : params.group) / kCount : 0;
    const auto* const from =
        reinterpret_cast<const V*>(static_cast<const T*>(params.x) + row * params.stride + column);
    std::uint8_t* const codes = params.codes + row * params.columns + column;
    V held[kHeld];
    float amax = 0;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (lane + i * kTeam < vectors) {
        held[i] = from[lane + i * kTeam];
        amax = held[i].most(amax);
      }
    }
    for (std::int64_t at = lane + kHeld * kTeam; at < vectors; at += kTeam) {
      amax = from[at].most(amax);
    }
    const float scale = scale_for<F>(params, most_of_team<kTeam>(amax));
    const Conversion by = conversion(params, scale);
    if (there && lane == 0) {
      params.made[group] = scale;
    }
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const std::int64_t at = lane + i * kTeam;
      if (at < vectors) {
        put_codes<F>(held[i], by, codes + at * kCount);
      }
    }
    for (std::int64_t at = lane + kHeld * kTeam; at < vectors; at += kTeam) {
      put_codes<F>(from[at], by, codes + at * kCount);
    }
  }
}

// Calls work(vector of x, row, column) for every vector of x, strided over all threads.
template <typename T, int kCount, typename Work>
__device__ void over_vectors(const QuantiseParams& params, Work work) {
  const std::int64_t of_row = params.columns / kCount;
  const std::int64_t all = params.rows * of_row;
  for (std::int64_t at = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; at < all;
       at += std::int64_t{gridDim.x} * blockDim.x) {
    const std::int64_t row = at / of_row;
    const std::int64_t column = at % of_row * kCount;
    work(*reinterpret_cast<const Vector<T, kCount>*>(static_cast<const T*>(params.x) +
                                                     row * params.stride + column),
         row, column);
  }
}

// The bits of the largest |x| of all, which order as the numbers do, in the place of the scale.
template <typename T, int kCount>
__global__ void most_of_all(const __grid_constant__ QuantiseParams params) {
  float amax = 0;
  over_vectors<T, kCount>(params, [&](const Vector<T, kCount>& from, std::int64_t, std::int64_t) {
    amax = from.most(amax);
  });
  amax = most_of_team<kThreads>(amax);
  if (threadIdx.x == 0) {
    atomicMax(reinterpret_cast<std::uint32_t*>(params.made), __float_as_uint(amax));
  }
}

// By the scales that are given, or by the one that follows from the largest of all.
template <typename F, typename T, int kCount>
__global__ void convert_all(const __grid_constant__ QuantiseParams params) {
  const bool given = params.given != nullptr;
  const std::int64_t across = (params.columns + params.group - 1) / params.group;
  const float one = given ? 1.0F : scale_for<F>(params, *params.made);
  const Conversion by_one = conversion(params, one);
  over_vectors<T, kCount>(
      params, [&](const Vector<T, kCount>& from, std::int64_t row, std::int64_t column) {
        const std::int64_t group = params.one_scale ? 0 : row * across + column / params.group;
        const Conversion by = given ? conversion(params, params.given[group]) : by_one;
        put_codes<F>(from, by, params.codes + row * params.columns + column);
      });
}

// The scale in the place of the largest of all, once nobody reads that any more.
template <typename F>
__global__ void finish_scale(const __grid_constant__ QuantiseParams params) {
  *params.made = scale_for<F>(params, *params.made);
}

unsigned blocks_of(std::int64_t units, std::int64_t units_a_block) {
  const std::int64_t blocks = (units + units_a_block - 1) / units_a_block;
  return static_cast<unsigned>(std::min(blocks, kMostBlocks));
}

template <typename F, typename T, int kCount>
cudaError_t launch_groups(const QuantiseParams& params, cudaStream_t stream) {
  const std::int64_t groups = params.rows * ((params.columns + params.group - 1) / params.group);
  const std::int64_t vectors = params.group / kCount;
  constexpr int kHalf = kWarp / 2;
  const int team = vectors <= kHalf * kHeld ? kHalf : vectors <= kWarp * kHeld ? kWarp : kThreads;
  const auto kernel = team == kHalf   ? quantise_groups<F, T, kCount, kHalf>
                      : team == kWarp ? quantise_groups<F, T, kCount, kWarp>
                                      : quantise_groups<F, T, kCount, kThreads>;
  kernel<<<blocks_of(groups, kThreads / team), kThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

template <typename F, typename T, int kCount>
cudaError_t launch_all(const QuantiseParams& params, cudaStream_t stream) {
  const unsigned blocks = blocks_of(params.rows * params.columns / kCount, kThreads);
  if (params.given == nullptr) {
    if (const cudaError_t error = cudaMemsetAsync(params.made, 0, sizeof(float), stream);
        error != cudaSuccess) {
      return error;
    }
    // Few blocks, each of which ends in one atomic.
    constexpr unsigned kMostOfAll = 1024;
    const unsigned few = std::min(blocks, kMostOfAll);
    most_of_all<T, kCount><<<few, kThreads, 0, stream>>>(params);
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) {
      return error;
    }
  }
  convert_all<F, T, kCount><<<blocks, kThreads, 0, stream>>>(params);
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) {
    return error;
  }
  if (params.given == nullptr) {
    finish_scale<F><<<1, 1, 0, stream>>>(params);
  }
  return cudaGetLastError();
}

// Whether every group begins and ends at a multiple of so many elements, in x and in the codes.
bool divides(const QuantiseParams& params, std::int64_t count, std::int64_t element_bytes) {
  const auto aligned = [](const void* at, std::int64_t bytes) {
    return reinterpret_cast<std::uintptr_t>(at) % static_cast<std::uintptr_t>(bytes) == 0;
  };
  return params.columns % count == 0 && params.stride % count == 0 && params.group % count == 0 &&
         aligned(params.x, count * element_bytes) && aligned(params.codes, count);
}

template <typename F, typename T>
cudaError_t launch_of(const QuantiseParams& params, cudaStream_t stream) {
  constexpr int kCount = static_cast<int>(16 / sizeof(T));
  const bool groups = params.given == nullptr && !params.one_scale;
  if (divides(params, kCount, sizeof(T))) {
    return groups ? launch_groups<F, T, kCount>(params, stream)
                  : launch_all<F, T, kCount>(params, stream);
  }
  return groups ? launch_groups<F, T, 1>(params, stream) : launch_all<F, T, 1>(params, stream);
}

template <typename F>
cudaError_t launch_from(Number from, const QuantiseParams& params, cudaStream_t stream) {
  switch (from) {
    case Number::kFp32:
      return launch_of<F, float>(params, stream);
    case Number::kBf16:
      return launch_of<F, __nv_bfloat16>(params, stream);
    case Number::kFp16:
      return launch_of<F, __half>(params, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

cudaError_t launch_quantise(Number from, bool e5m2, const QuantiseParams& params,
                            int compute_capability, cudaStream_t stream) {
  if (params.rows == 0 || params.columns == 0) {
    return cudaSuccess;
  }
  constexpr int kFirstWithCvt = 89;
  if (compute_capability >= kFirstWithCvt) {
    return e5m2 ? launch_from<Format<true, true>>(from, params, stream)
                : launch_from<Format<false, true>>(from, params, stream);
  }
  return e5m2 ? launch_from<Format<true, false>>(from, params, stream)
              : launch_from<Format<false, false>>(from, params, stream);
}

}  // namespace lora_bench::kernels
