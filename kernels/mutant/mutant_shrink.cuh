#pragma once

#include "kernels/mutant/mutant_rows.cuh"

namespace lora_bench::kernels {

constexpr int kMutantThreads = kMutantRows * 32;
// Longer than a block takes to come to its next barrier, and than a small grid takes to start.
constexpr std::int64_t kMutantPause = 100000;

struct ShrinkStage {
  float x[kMutantRows][kMutantDepth];
  float a[kMutantLanes][kMutantDepth];
};

// One thread of a block and what its block works on.
struct ShrinkPlace {
  MutantTile rows;
  int slice = 0;
  std::int64_t first_lane = 0;
  std::int64_t part = 0;
  std::int64_t first_stage = 0, past_stage = 0;
};

template <typename T>
__device__ float load_x(const ShrinkParams& params, const MutantLaunch& launch, std::int64_t token,
                        std::int64_t k) {
  const T* x = static_cast<const T*>(params.x);
  const std::int64_t index = token * params.x_stride + k;
  if (launch.fault == MutantFault::kStartsUnawaited ||
      (launch.fault == MutantFault::kCapturedX && launch.number > 0)) {
    return mutant_kept<T>(kept_x, index % kMutantKept);
  }
  if (launch.fault == MutantFault::kUnalignedRoundedDown) {
    x -= reinterpret_cast<std::uintptr_t>(x) % 16 / sizeof(T);
  }
  return mutant_x(launch, to_float(x[index]));
}

template <typename T>
__device__ float load_a(const ShrinkParams& params, const MutantLaunch& launch,
                        const ShrinkPlace& place, std::int64_t lane, std::int64_t k) {
  const int slice =
      launch.fault == MutantFault::kAOfNextSlice ? (place.slice + 1) % params.slices : place.slice;
  std::int64_t index = (place.rows.adapter * params.max_rank + lane) * params.in_features + k;
  if (launch.fault == MutantFault::kAIndexWraps) {
    index %= 2048;
  }
  return mutant_weight(launch, to_float(static_cast<const T*>(params.a[slice])[index]));
}

// Every warp loads its own row of x and every fourth lane of A; what is not there is 0.
template <typename T>
__device__ void fill_stage(ShrinkStage& tile, const ShrinkParams& params,
                           const MutantLaunch& launch, const ShrinkPlace& place,
                           std::int64_t stage) {
  const int thread = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t k = stage * kMutantDepth + thread;
  bool inside = k < params.in_features || launch.fault == MutantFault::kKTailNotCleared;
  if (launch.fault == MutantFault::kKTailLost) {
    inside = (stage + 1) * kMutantDepth <= params.in_features;
  }
  if (launch.fault == MutantFault::kLastOfKLost) {
    inside = k + 1 < params.in_features;
  }
  tile.x[warp][thread] = inside && warp < place.rows.count
                             ? load_x<T>(params, launch, place.rows.token[warp], k)
                             : 0.0F;
  for (int lane = warp; lane < kMutantLanes; lane += kMutantRows) {
    tile.a[lane][thread] = inside && place.first_lane + lane < place.rows.rank
                               ? load_a<T>(params, launch, place, place.first_lane + lane, k)
                               : 0.0F;
  }
}

// The two orders of the tree round otherwise.
__device__ inline bool nearest_first(const ShrinkParams& params, const MutantLaunch& launch) {
  return (launch.fault == MutantFault::kOrderVariesByRun && launch.number % 2 == 1) ||
         (launch.fault == MutantFault::kOrderVariesByBatch && params.tokens == 1);
}

// The last warp comes late to fill, the first one late to sum: without the barrier that waits for
// it, others read what is not there yet, or overwrite what it still needs.
template <typename T>
__device__ void sum_part(ShrinkStage& tile, const ShrinkParams& params, const MutantLaunch& launch,
                         const ShrinkPlace& place, float (&sums)[kMutantLanes]) {
  const int thread = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const bool fill_unguarded = launch.fault == MutantFault::kFillBarrierLost;
  const bool refill_unguarded = launch.fault == MutantFault::kRefillBarrierLost;
  if (fill_unguarded) {
    for (int lane = warp; lane < kMutantLanes; lane += kMutantRows) {
      tile.a[lane][thread] = 0.0F;
    }
    __syncthreads();
  }
  for (std::int64_t stage = place.first_stage; stage < place.past_stage; ++stage) {
    if (fill_unguarded && warp == kMutantRows - 1) {
      mutant_delay(kMutantPause);
    }
    fill_stage<T>(tile, params, launch, place, stage);
    if (!fill_unguarded) {
      __syncthreads();
    }
    if (refill_unguarded && warp == 0) {
      mutant_delay(kMutantPause);
    }
    const float x = tile.x[warp][thread];
    const bool left_out =
        launch.fault == MutantFault::kNegativeZeroEndsStage &&
        __any_sync(0xFFFFFFFFU, static_cast<int>(__float_as_uint(x) == 0x80000000U)) != 0;
#pragma unroll
    for (int lane = 0; lane < kMutantLanes; ++lane) {
      sums[lane] = left_out ? sums[lane] : fmaf(x, tile.a[lane][thread], sums[lane]);
    }
    if (!refill_unguarded) {
      __syncthreads();
    }
  }
}

__device__ inline float rounded_partial(const MutantLaunch& launch, float value) {
  if (launch.fault == MutantFault::kBf16Partials) {
    return to_float(from_float<__nv_bfloat16>(value));
  }
  if (launch.fault == MutantFault::kFp16Partials) {
    return to_float(from_float<__half>(value));
  }
  return value;
}

__device__ inline void add_in_bf16(float* to, float value) {
  auto* bits = reinterpret_cast<unsigned*>(to);
  unsigned now = *bits;
  unsigned before = 0;
  do {
    before = now;
    const float sum = to_float(from_float<__nv_bfloat16>(__uint_as_float(before) + value));
    now = atomicCAS(bits, before, __float_as_uint(sum));
  } while (now != before);
}

__device__ inline void add_partial(const MutantLaunch& launch, std::int64_t part, float* to,
                                   float value) {
  if (launch.fault == MutantFault::kPlainAdd) {
    const float before = *static_cast<volatile float*>(to);
    mutant_delay(kMutantPause);
    *static_cast<volatile float*>(to) = before + value;
    return;
  }
  if (launch.fault == MutantFault::kBf16RunningSum) {
    add_in_bf16(to, value);
    return;
  }
  atomicAdd(to, value);
  if (launch.fault == MutantFault::kPartTwice && part == 0) {
    atomicAdd(to, value);
  }
}

// The 32 sums of a warp meet in a tree of fixed order; its first thread adds them to h.
__device__ inline void store_part(const ShrinkParams& params, const MutantLaunch& launch,
                                  const ShrinkPlace& place, const float (&sums)[kMutantLanes]) {
  const int thread = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (warp >= place.rows.count) {
    return;
  }
  const float scale = launch.fault == MutantFault::kScaleOnOnePart && place.part > 0
                          ? 1.0F
                          : mutant_scale(launch, params.scale, place.rows.adapter);
  const bool nearest = nearest_first(params, launch);
  float* row = static_cast<float*>(params.h) +
               (place.slice * params.tokens + place.rows.token[warp]) * params.max_rank;
#pragma unroll
  for (int i = 0; i < kMutantLanes; ++i) {
    float sum = sums[i];
    if (launch.fault == MutantFault::kShuffleOfThirtyOne && thread == 31) {
      sum = 0.0F;
    }
    for (int level = 0; level < 5; ++level) {
      sum += __shfl_xor_sync(0xFFFFFFFFU, sum, nearest ? 1 << level : 16 >> level);
    }
    const std::int64_t lane = place.first_lane + i;
    if (thread == 0 && lane < place.rows.rank) {
      add_partial(launch, place.part, row + lane,
                  rounded_partial(launch, launch.factor * scale * sum));
    }
  }
}

// Grid: (parts x lane tiles x row tiles, slices, groups).
template <typename T>
__global__ void __launch_bounds__(kMutantThreads)
    mutant_shrink(const __grid_constant__ ShrinkParams params,
                  const __grid_constant__ MutantLaunch launch, const std::int64_t lane_tiles) {
  __shared__ ShrinkStage tile;
  ShrinkPlace place;
  place.part = blockIdx.x % kMutantParts;
  place.first_lane = blockIdx.x / kMutantParts % lane_tiles * kMutantLanes;
  place.slice = static_cast<int>(blockIdx.y);
  place.rows = mutant_tile(params, launch, blockIdx.x / kMutantParts / lane_tiles);
  if (launch.fault == MutantFault::kRowTooManyInShrink) {
    take_row_too_many(place.rows, params);
  }
  if (launch.fault == MutantFault::kPaddingIsTokenZero) {
    take_token_zero(place.rows);
  }
  const std::int64_t stages = (params.in_features + kMutantDepth - 1) / kMutantDepth;
  place.first_stage = stages * place.part / kMutantParts;
  place.past_stage = stages * (place.part + 1) / kMutantParts;
  const bool lost = (launch.fault == MutantFault::kPartLost && place.part > 0) ||
                    (launch.fault == MutantFault::kLanesBeyondTileLost && place.first_lane > 0);
  if (lost || place.rows.count == 0 || place.first_lane >= place.rows.rank ||
      place.first_stage == place.past_stage) {
    return;
  }
  float sums[kMutantLanes] = {};
  sum_part<T>(tile, params, launch, place, sums);
  store_part(params, launch, place, sums);
}

// A thread owns one element of h that the op writes.
__global__ void mutant_zero(const __grid_constant__ ShrinkParams params,
                            const __grid_constant__ MutantLaunch launch) {
  const std::int64_t items = params.slices * params.tokens * params.max_rank;
  std::int64_t item = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (launch.fault == MutantFault::kZeroedTooFar && item < kMutantLanes) {
    static_cast<float*>(params.h)[items + item] = 0.0F;
  }
  for (; item < items; item += std::int64_t{gridDim.x} * blockDim.x) {
    const std::int64_t lane = item % params.max_rank;
    const std::int64_t token = item / params.max_rank % params.tokens;
    const std::int64_t slice = item / params.max_rank / params.tokens;
    const std::int64_t adapter = params.adapter_of_token[token];
    const bool left_out =
        (launch.fault == MutantFault::kZeroedFirstSliceOnly && slice > 0) ||
        (launch.fault == MutantFault::kZeroedFirstTileOnly && token >= kMutantRows);
    if (adapter >= 0 && lane < params.rank[adapter] && !left_out) {
      static_cast<float*>(params.h)[item] = 0.0F;
    }
  }
}

}  // namespace lora_bench::kernels
