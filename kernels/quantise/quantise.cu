#include "kernels/quantise/quantise.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "kernels/quantise/convert.cuh"

namespace lora_bench::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kMostThreads = 512;
constexpr int kWarp = 32;
// Lanes that make a small group together.
constexpr int kFew = 4;
// Vectors that a thread keeps between the two looks at a group; those behind them are read again.
constexpr int kHeld = 4;
// Vectors that a thread reads before it converts the first, where there is one look alone.
constexpr int kAtOnce = 4;
constexpr std::int64_t kMostBlocks = 1 << 16;

// A team that makes one group: part of a warp, a warp, or, of zero, all threads of the block.
constexpr int kBlock = 0;
template <int kTeam>
__device__ int team_size() {
  return kTeam == kBlock ? static_cast<int>(blockDim.x) : kTeam;
}

// The largest of all threads of a team.
template <int kTeam>
__device__ float most_of_team(float amax) {
  constexpr int kInWarp = kTeam != kBlock && kTeam < kWarp ? kTeam : kWarp;
#pragma unroll
  for (int by = kInWarp / 2; by > 0; by /= 2) {
    amax = fmaxf(amax, __shfl_xor_sync(0xffffffffU, amax, by));
  }
  if constexpr (kTeam == kBlock) {
    __shared__ float of_warps[kMostThreads / kWarp];
    const unsigned lane = threadIdx.x % kWarp;
    __syncthreads();  // those of the group before were read
    if (lane == 0) {
      of_warps[threadIdx.x / kWarp] = amax;
    }
    __syncthreads();
    amax = lane < blockDim.x / kWarp ? of_warps[lane] : 0.0F;
#pragma unroll
    for (int by = kWarp / 2; by > 0; by /= 2) {
      amax = fmaxf(amax, __shfl_xor_sync(0xffffffffU, amax, by));
    }
  }
  return amax;
}

// Codes of the vectors of a group, of which the team's lane holds the first kHeld of its own.
template <typename F, typename V, typename Conversion>
__device__ __forceinline__ void put_group(const V (&held)[kHeld], const V* from, int vectors,
                                          const Conversion& by, std::uint8_t* codes, int lane,
                                          int team) {
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int at = lane + i * team;
    if (at < vectors) {
      put_codes<F>(held[i], by, codes + std::int64_t{at} * V::kCount);
    }
  }
  for (int at = lane + kHeld * team; at < vectors; at += team) {
    put_codes<F>(from[at], by, codes + std::int64_t{at} * V::kCount);
  }
}

// A team makes the scale and the codes of one group after the other. All threads of a warp go
// through the same number of groups, those behind the last with nothing to do.
template <typename F, typename T, int kCount, int kTeam>
__global__ void __launch_bounds__(kTeam == kBlock ? kMostThreads : kThreads)
    quantise_groups(const __grid_constant__ QuantiseParams params) {
  using V = Vector<T, kCount>;
  const int team = team_size<kTeam>();
  const int teams = kTeam == kBlock ? 1 : kThreads / team;
  const std::int64_t across = (params.columns + params.group - 1) / params.group;
  const std::int64_t groups = params.rows * across;
  const int lane = static_cast<int>(threadIdx.x) % team;
  for (std::int64_t first = std::int64_t{blockIdx.x} * teams; first < groups;
       first += std::int64_t{gridDim.x} * teams) {
    const std::int64_t group = first + static_cast<int>(threadIdx.x) / team;
    const bool there = group < groups;
    const std::int64_t row = there ? group / across : 0;
    const std::int64_t column = there ? (group - row * across) * params.group : 0;
    const std::int64_t left = params.columns - column;
    const int vectors =
        there ? static_cast<int>((left < params.group ? left : params.group) / kCount) : 0;
    const auto* const from =
        reinterpret_cast<const V*>(static_cast<const T*>(params.x) + row * params.stride + column);
    std::uint8_t* const codes = params.codes + row * params.columns + column;
    V held[kHeld];
    float amax = 0;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (lane + i * team < vectors) {
        held[i] = from[lane + i * team];
      }
    }
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (lane + i * team < vectors) {
        amax = most_of(held[i], amax);
      }
    }
    for (int at = lane + kHeld * team; at < vectors; at += team) {
      amax = most_of(from[at], amax);
    }
    const float scale = scale_for<F>(params, most_of_team<kTeam>(amax));
    if (there && lane == 0) {
      params.made[group] = scale;
    }
    using Ordinary = OrdinaryScale<T, false>;
    if (Ordinary::holds(scale)) {
      put_group<F>(held, from, vectors, Ordinary(params, scale, F::kLargest), codes, lane, team);
    } else {
      put_group<F>(held, from, vectors, AnyScale(params, scale), codes, lane, team);
    }
  }
}

// Calls work(vector of x, its number) for every vector of x, strided over all threads, the last
// first where `backward`. Codes lie without gaps, so the number says where those of a vector are.
template <typename V, typename Work>
__device__ __forceinline__ void over_vectors(const QuantiseParams& params, bool backward,
                                             Work work) {
  const std::int64_t of_row = params.columns / V::kCount;
  const std::int64_t gap = params.stride / V::kCount - of_row;
  const std::int64_t all = params.rows * of_row;
  const auto* const x = static_cast<const V*>(params.x);
  const std::int64_t step = std::int64_t{blockDim.x} * kAtOnce;
  for (std::int64_t first = blockIdx.x * step; first < all; first += gridDim.x * step) {
    const std::int64_t own = first + threadIdx.x;
    V vectors[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const std::int64_t at = own + i * std::int64_t{blockDim.x};
      if (at < all) {
        const std::int64_t number = backward ? all - 1 - at : at;
        vectors[i] = x[number + (gap == 0 ? 0 : number / of_row * gap)];
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const std::int64_t at = own + i * std::int64_t{blockDim.x};
      if (at < all) {
        work(vectors[i], backward ? all - 1 - at : at);
      }
    }
  }
}

// The bits of the largest |x| of all, which order as the numbers do, in the place of the scale.
template <typename T, int kCount>
__global__ void most_of_all(const __grid_constant__ QuantiseParams params) {
  float amax = 0;
  over_vectors<Vector<T, kCount>>(
      params, false, [&](const auto& from, std::int64_t) { amax = most_of(from, amax); });
  amax = most_of_team<kBlock>(amax);
  if (threadIdx.x == 0) {
    atomicMax(reinterpret_cast<std::uint32_t*>(params.made), __float_as_uint(amax));
  }
}

// By the scale that is given, or by the one that follows from the largest of all. In that case the
// numbers that were read last for it are taken first: they may still be in the cache.
template <typename F, typename T, int kCount, bool kGiven>
__global__ void convert_by_one(const __grid_constant__ QuantiseParams params) {
  const float scale = kGiven ? *params.given : scale_for<F>(params, *params.made);
  const auto convert = [&](const auto& by) {
    over_vectors<Vector<T, kCount>>(params, !kGiven, [&](const auto& from, std::int64_t number) {
      put_codes<F>(from, by, params.codes + number * kCount);
    });
  };
  using Ordinary = OrdinaryScale<T, kGiven>;
  if (Ordinary::holds(scale)) {
    convert(Ordinary(params, scale, F::kLargest));
  } else {
    convert(AnyScale(params, scale));
  }
}

// By the scales that are given for tokens or groups.
template <typename F, typename T, int kCount>
__global__ void convert_by_given(const __grid_constant__ QuantiseParams params) {
  using Ordinary = OrdinaryScale<T, true>;
  const std::int64_t across = (params.columns + params.group - 1) / params.group;
  const std::int64_t of_row = params.columns / kCount;
  over_vectors<Vector<T, kCount>>(params, false, [&](const auto& from, std::int64_t number) {
    const std::int64_t row = number / of_row;
    const std::int64_t run = across == 1 ? 0 : (number - row * of_row) * kCount / params.group;
    const float scale = params.given[row * across + run];
    std::uint8_t* const codes = params.codes + number * kCount;
    if (Ordinary::holds(scale)) {
      put_codes<F>(from, Ordinary(params, scale, F::kLargest), codes);
    } else {
      put_codes<F>(from, AnyScale(params, scale), codes);
    }
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
  // Registers hold the whole group where groups fill a GPU; a thread has one vector alone, if there
  // are enough threads, where they are too few for that.
  constexpr std::int64_t kFilling = 1024;
  const std::int64_t of_thread = groups < kFilling ? 1 : kHeld;
  if (vectors <= kFew * of_thread) {
    const auto kernel = quantise_groups<F, T, kCount, kFew>;
    kernel<<<blocks_of(groups, kThreads / kFew), kThreads, 0, stream>>>(params);
    return cudaGetLastError();
  }
  if (vectors <= kWarp * of_thread) {
    const auto kernel = quantise_groups<F, T, kCount, kWarp>;
    kernel<<<blocks_of(groups, kThreads / kWarp), kThreads, 0, stream>>>(params);
    return cudaGetLastError();
  }
  const std::int64_t wanted = (vectors + of_thread * kWarp - 1) / (of_thread * kWarp) * kWarp;
  const auto threads = static_cast<unsigned>(std::min<std::int64_t>(wanted, kMostThreads));
  const auto kernel = quantise_groups<F, T, kCount, kBlock>;
  kernel<<<blocks_of(groups, 1), threads, 0, stream>>>(params);
  return cudaGetLastError();
}

template <typename F, typename T, int kCount>
cudaError_t launch_all(const QuantiseParams& params, cudaStream_t stream) {
  const std::int64_t vectors = params.rows * params.columns / kCount;
  const unsigned blocks = blocks_of(vectors, std::int64_t{kThreads} * kAtOnce);
  if (params.given != nullptr) {
    const auto kernel =
        params.one_scale ? convert_by_one<F, T, kCount, true> : convert_by_given<F, T, kCount>;
    kernel<<<blocks, kThreads, 0, stream>>>(params);
    return cudaGetLastError();
  }
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
  const auto convert = convert_by_one<F, T, kCount, false>;
  convert<<<blocks, kThreads, 0, stream>>>(params);
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) {
    return error;
  }
  finish_scale<F><<<1, 1, 0, stream>>>(params);
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

// As one row, where the rows have one scale and lie without gaps.
QuantiseParams flattened(QuantiseParams params) {
  if (params.one_scale && params.stride == params.columns) {
    params.columns *= params.rows;
    params.stride = params.group = params.columns;
    params.rows = 1;
  }
  return params;
}

template <typename F, typename T>
cudaError_t launch_of(const QuantiseParams& asked, cudaStream_t stream) {
  constexpr int kCount = static_cast<int>(16 / sizeof(T));
  const QuantiseParams params = flattened(asked);
  // What one block holds in its registers is one group, whoever else shares the scale.
  const bool one_group = params.rows == 1 && params.columns <= kCount * kHeld * kMostThreads;
  const bool groups = params.given == nullptr && (!params.one_scale || one_group);
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
