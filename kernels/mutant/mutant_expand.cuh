#pragma once

#include "kernels/mutant/mutant_shrink.cuh"

namespace lora_bench::kernels {

struct ExpandStage {
  float h[kMutantRows][kMutantLanes];
  float b[kMutantColumns][kMutantLanes + 1];
};

struct ExpandPlace {
  MutantTile rows;
  bool row_too_many = false;  // the last row is not ours
  int slice = 0;              // that is written
  int source = 0;             // whose h, B and bias are read
  std::int64_t slice_start = 0;
  std::int64_t first_column = 0;
};

// The other of the last two slices of one width, for either of them.
__device__ inline int swapped_slice(const ExpandParams& params, int slice) {
  for (int right = params.slices - 1; right > 0; --right) {
    for (int left = right - 1; left >= 0; --left) {
      if (params.width[left] == params.width[right] && params.width[left] > 0) {
        return slice == left ? right : (slice == right ? left : slice);
      }
    }
  }
  return slice;
}

__device__ inline const float* address_of_h(const ExpandParams& params, const MutantLaunch& launch,
                                            const ExpandPlace& place, int row, std::int64_t lane) {
  if (launch.fault == MutantFault::kHOfNeighbour) {
    row = (row + 1) % place.rows.count;
  }
  const int slice = launch.fault == MutantFault::kHOfFirstSlice ? 0 : place.source;
  const std::int64_t pitch =
      launch.fault == MutantFault::kHPackedByRank ? place.rows.rank : params.max_rank;
  return static_cast<const float*>(params.h) +
         (slice * params.tokens + place.rows.token[row]) * pitch + lane;
}

// As the sum over the rank takes it.
__device__ inline float mutant_h(const MutantLaunch& launch, float h) {
  switch (launch.fault) {
    case MutantFault::kHAsBf16:
      return to_float(from_float<__nv_bfloat16>(h));
    case MutantFault::kHTruncated:
      return __uint_as_float(__float_as_uint(h) & 0xFFFF0000U);
    case MutantFault::kHAsTf32:
      return __uint_as_float(__float_as_uint(h) & 0xFFFFE000U);
    default:
      return h;
  }
}

// Four bytes, which arrive while the thread goes on.
__device__ inline void copy_async(float* to, const float* from) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(address), "l"(from) : "memory");
}

__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

template <typename T>
__device__ float load_b(const ExpandParams& params, const MutantLaunch& launch,
                        const ExpandPlace& place, std::int64_t column, std::int64_t lane) {
  const std::int64_t pitch =
      launch.fault == MutantFault::kBPackedByRank ? place.rows.rank : params.max_rank;
  const std::int64_t row = place.rows.adapter * params.width[place.source] + column;
  return mutant_weight(launch,
                       to_float(static_cast<const T*>(params.b[place.source])[row * pitch + lane]));
}

__device__ inline std::int64_t lanes_summed(const ExpandParams& params, const MutantLaunch& launch,
                                            std::int64_t rank) {
  switch (launch.fault) {
    case MutantFault::kRankTailLost:
      return rank / 4 * 4;
    case MutantFault::kLastLaneLost:
      return rank - 1;
    case MutantFault::kRankPaddingRead:
      return params.max_rank;
    default:
      return rank;
  }
}

// What is not there is 0. B before h: a copy of h that is not waited for is then still on its way.
template <typename T>
__device__ void fill_stage(ExpandStage& tile, const ExpandParams& params,
                           const MutantLaunch& launch, const ExpandPlace& place, std::int64_t first,
                           std::int64_t lanes) {
  const int thread = static_cast<int>(threadIdx.x);
  const bool not_awaited = launch.fault == MutantFault::kAsyncCopyNotAwaited;
  for (int i = thread; i < kMutantColumns * kMutantLanes; i += kMutantThreads) {
    const std::int64_t column = place.first_column + i / kMutantLanes;
    const std::int64_t lane = first + i % kMutantLanes;
    tile.b[i / kMutantLanes][i % kMutantLanes] =
        column < params.width[place.source] && lane < lanes
            ? load_b<T>(params, launch, place, column, lane)
            : 0.0F;
  }
  if (not_awaited) {
    __syncthreads();
  }
  for (int i = thread; i < kMutantRows * kMutantLanes; i += kMutantThreads) {
    const int row = i / kMutantLanes;
    const std::int64_t lane = first + i % kMutantLanes;
    float& to = tile.h[row][i % kMutantLanes];
    if (row < place.rows.count && lane < lanes) {
      copy_async(&to, address_of_h(params, launch, place, row, lane));
    } else {
      to = 0.0F;
    }
  }
  if (!not_awaited) {
    wait_for_copies();
  }
}

// Shared memory may hold what a block before left, by chance the right numbers.
__device__ inline void clear_stage(ExpandStage& tile) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < kMutantColumns * kMutantLanes; i += kMutantThreads) {
    tile.b[i / kMutantLanes][i % kMutantLanes] = 0.0F;
  }
  for (int i = thread; i < kMutantRows * kMutantLanes; i += kMutantThreads) {
    tile.h[i / kMutantLanes][i % kMutantLanes] = 0.0F;
  }
  __syncthreads();
}

// The last warp comes late to fill where the barrier that waits for it is lost.
template <typename T>
__device__ float sum_over_rank(ExpandStage& tile, const ExpandParams& params,
                               const MutantLaunch& launch, const ExpandPlace& place) {
  const int thread = static_cast<int>(threadIdx.x);
  const bool unguarded = launch.fault == MutantFault::kExpandBarrierLost;
  if (unguarded || launch.fault == MutantFault::kAsyncCopyNotAwaited) {
    clear_stage(tile);
  }
  if (unguarded && thread >= kMutantThreads - 32) {
    mutant_delay(kMutantPause);
  }
  const std::int64_t lanes = lanes_summed(params, launch, place.rows.rank);
  float sum = 0.0F;
  bool ended = false;
  for (std::int64_t first = 0; first < lanes; first += kMutantLanes) {
    fill_stage<T>(tile, params, launch, place, first, lanes);
    if (!unguarded) {
      __syncthreads();
    }
    for (int lane = 0; lane < kMutantLanes; ++lane) {
      const float h = mutant_h(launch, tile.h[thread / 32][lane]);
      ended = ended || (launch.fault == MutantFault::kZeroHEndsRank && h == 0.0F);
      sum = ended ? sum : fmaf(h, tile.b[thread % 32][lane], sum);
    }
    __syncthreads();
  }
  return sum;
}

template <typename T>
__device__ float mutant_bias(const ExpandParams& params, const MutantLaunch& launch,
                             const ExpandPlace& place, std::int64_t column) {
  const int slice = launch.fault == MutantFault::kBiasOfFirstSlice ? 0 : place.source;
  if (params.bias[slice] == nullptr || column >= params.width[slice] ||
      launch.fault == MutantFault::kBiasSkipped) {
    return 0.0F;
  }
  const std::int64_t index = place.rows.adapter * params.width[slice] + column;
  const float bias = to_float(static_cast<const T*>(params.bias[slice])[index]);
  return launch.fault == MutantFault::kBiasTwice ? 2 * bias : bias;
}

template <typename T>
__device__ T mutant_stored(const MutantLaunch& launch, float value);
template <>
__device__ inline __nv_bfloat16 mutant_stored(const MutantLaunch& launch, float value) {
  return launch.fault == MutantFault::kYTruncated ? __float2bfloat16_rz(value)
                                                  : __float2bfloat16_rn(value);
}
template <>
__device__ inline __half mutant_stored(const MutantLaunch& launch, float value) {
  return launch.fault == MutantFault::kYTruncated ? __float2half_rz(value) : __float2half_rn(value);
}

// Writes that are no row's: beside y, or into x.
template <typename T>
__device__ void write_astray(const ExpandParams& params, const MutantLaunch& launch) {
  T* y = static_cast<T*>(params.y);
  if (launch.fault == MutantFault::kPastTheEnd) {
    y[launch.y_elements] = from_float<T>(1.0F);
  }
  if (launch.fault == MutantFault::kBeforeTheStart) {
    y[-1] = from_float<T>(1.0F);
  }
  if (launch.fault == MutantFault::kXAsScratch && launch.x != nullptr) {
    static_cast<T*>(launch.x)[0] = from_float<T>(0.0F);
  }
}

// What y gains in one element, before it is added.
template <typename T>
__device__ float mutant_delta(const ExpandParams& params, const MutantLaunch& launch,
                              const ExpandPlace& place, std::int64_t column, float sum) {
  const MutantFault fault = launch.fault;
  float delta = mutant_scale(launch, params.scale, place.rows.adapter) * sum;
  delta += mutant_bias<T>(params, launch, place, column);
  const bool last_odd =
      column == params.width[place.slice] - 1 && params.width[place.slice] % 2 == 1;
  if (fault == MutantFault::kDeltaTwice || (fault == MutantFault::kOddColumnTwice && last_odd)) {
    delta *= 2;
  }
  return fault == MutantFault::kDeltaRounded ? to_float(from_float<T>(delta)) : delta;
}

constexpr float kLargestFp16 = 65504.0F;

// Adds to y, or overwrites it.
template <typename T>
__device__ void store_element(const ExpandParams& params, const MutantLaunch& launch,
                              const ExpandPlace& place, std::int64_t token, std::int64_t column,
                              float delta) {
  const MutantFault fault = launch.fault;
  std::int64_t row = token * params.y_stride;
  if (fault == MutantFault::kYIndexWraps) {
    row %= 1024;
  }
  if (fault == MutantFault::kColumnShifted) {
    column = (column + 1) % params.width[place.slice];
  }
  const std::int64_t in_row = params.first_column + place.slice_start + column;
  T* y = static_cast<T*>(params.y) + row + in_row;
  const bool adds = (params.add_inputs && fault != MutantFault::kInputsIgnored) ||
                    fault == MutantFault::kInputsAlwaysAdded;
  float before = adds ? to_float(*y) : 0.0F;
  if (fault == MutantFault::kStaleY && launch.number > 0 && adds) {
    before = mutant_kept<T>(kept_y, (row + in_row) % kMutantKept);
  }
  if (fault == MutantFault::kCapturedY && launch.number > 0) {
    y = reinterpret_cast<T*>(kept_y) + (row + in_row) % kMutantKept;
  }
  if (fault == MutantFault::kZeroYSkipped && adds && before == 0.0F) {
    return;
  }
  float value = before + delta;
  if (fault == MutantFault::kYSaturatesAt65504) {
    value = fminf(fmaxf(value, -kLargestFp16), kLargestFp16);
  }
  *y = mutant_stored<T>(launch, value);
  const bool last = place.slice == params.slices - 1 && column == params.width[place.slice] - 1;
  if (fault == MutantFault::kPastTheSlice && last) {
    y[1] = from_float<T>(12345.0F);
  }
}

// Grid: (column tiles of the widest slice x row tiles, slices, groups).
template <typename T>
__global__ void __launch_bounds__(kMutantThreads)
    mutant_expand(const __grid_constant__ ExpandParams params,
                  const __grid_constant__ MutantLaunch launch, const std::int64_t column_tiles) {
  __shared__ ExpandStage tile;
  const MutantFault fault = launch.fault;
  if (blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0 && threadIdx.x == 0) {
    write_astray<T>(params, launch);
  }
  if (fault == MutantFault::kHClearedUnawaited) {
    let_next_kernel_start();
    mutant_delay(kMutantPause);
  }
  ExpandPlace place;
  place.slice = static_cast<int>(blockIdx.y);
  place.source =
      fault == MutantFault::kSlicesSwapped ? swapped_slice(params, place.slice) : place.slice;
  place.first_column = blockIdx.x % column_tiles * kMutantColumns;
  place.rows = mutant_tile(params, launch, blockIdx.x / column_tiles);
  if (fault == MutantFault::kRowTooManyInExpand) {
    const int ours = place.rows.count;
    take_row_too_many(place.rows, params);
    place.row_too_many = place.rows.count > ours;
  }
  const std::int64_t width = params.width[place.slice];
  const bool lost =
      fault == MutantFault::kColumnTailLost && place.first_column + kMutantColumns > width;
  if (lost || place.rows.count == 0 || place.rows.rank == 0 || place.first_column >= width) {
    return;
  }
  for (int earlier = 0; earlier < place.slice; ++earlier) {
    place.slice_start += params.width[earlier];
  }
  if (fault == MutantFault::kSlicesAtEqualDistances) {
    place.slice_start = params.columns / params.slices * place.slice;
  }
  const bool bias_alone = place.rows.without_adapter && fault == MutantFault::kBiasOnBaseRows;
  const float sum = bias_alone ? 0.0F : sum_over_rank<T>(tile, params, launch, place);
  const int row = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t column = place.first_column + threadIdx.x % 32;
  if (row >= place.rows.count || column >= width || place.slice_start + column >= params.columns) {
    return;
  }
  if (fault == MutantFault::kZeroSumUnwritten && sum == 0.0F) {
    return;
  }
  if (place.row_too_many && row == place.rows.count - 1) {
    mutant_delay(kMutantPause);
  }
  store_element<T>(params, launch, place, place.rows.token[row], column,
                   mutant_delta<T>(params, launch, place, column, sum));
}

}  // namespace lora_bench::kernels
