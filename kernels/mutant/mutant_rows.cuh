#pragma once

#include "kernels/dtype.cuh"
#include "kernels/link.cuh"
#include "kernels/mutant/mutant.h"

namespace lora_bench::kernels {

// What faults keep from one launch to the next.
constexpr std::int64_t kMutantKept = std::int64_t{1} << 20;
__device__ std::int32_t kept_order[kMutantMostTokens];
__device__ std::int32_t kept_ids[kMutantMostSlots];
__device__ std::int32_t kept_starts[kMutantMostSlots + 1];
__device__ std::uint16_t kept_x[kMutantKept];
__device__ std::uint16_t kept_y[kMutantKept];

// The rows of a tile: those of one group, or, for some faults, of those that have no adapter.
struct MutantTile {
  std::int64_t adapter = 0;
  std::int64_t rank = 0;
  std::int64_t token[kMutantRows] = {};
  std::int64_t position = 0;  // in the order, of the first row
  int count = 0;
  bool without_adapter = false;
};

// So long that every block of a small grid, or every other warp of a block, has come to its end.
__device__ inline void mutant_delay(std::int64_t nanoseconds) {
  std::int64_t start = 0;
  std::int64_t now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start)::"memory");
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  } while (now - start < nanoseconds);
}

// A plan of another batch may name rows and slots that this one has not: those faults would end in
// an illegal address, after which nothing more could be tested.
__device__ inline void keep_within(MutantTile& rows, std::int64_t tokens, std::int64_t slots) {
  int within = 0;
  while (within < rows.count && rows.token[within] < tokens) {
    ++within;
  }
  rows.count = rows.adapter < slots ? within : 0;
}

template <typename Params>
__device__ MutantTile mutant_tile(const Params& params, const MutantLaunch& launch,
                                  std::int64_t tile) {
  const MutantFault fault = launch.fault;
  const bool stale = fault == MutantFault::kStalePlan && launch.number > 0;
  const std::int32_t* order = stale ? kept_order : params.token_order;
  const std::int32_t* ids = stale ? kept_ids : params.active_ids;
  const std::int32_t* starts = stale ? kept_starts : params.group_starts;
  const std::int64_t group = blockIdx.z;

  MutantTile rows;
  rows.without_adapter = group == launch.groups;
  rows.adapter = ids[rows.without_adapter ? 0 : group];
  std::int64_t first = starts[group];
  std::int64_t end = rows.without_adapter ? params.tokens : std::int64_t{starts[group + 1]};
  if (fault == MutantFault::kEdgeOneRowLate || fault == MutantFault::kEdgeOneRowEarly) {
    const int by = fault == MutantFault::kEdgeOneRowLate ? 1 : -1;
    first += group > 0 ? by : 0;
    end += group + 1 < launch.groups ? by : 0;
  }
  first += tile * kMutantRows;
  const std::int64_t left = end - first;
  rows.count = left >= kMutantRows ? kMutantRows : (left > 0 ? static_cast<int>(left) : 0);
  rows.position = first;
  for (int row = 0; row < rows.count; ++row) {
    rows.token[row] = fault == MutantFault::kOrderIgnored ? first + row : order[first + row];
  }

  const bool partial = rows.count > 0 && rows.count < kMutantRows;
  if ((fault == MutantFault::kPartialTileLost && partial) ||
      (fault == MutantFault::kLastTileLost && left <= kMutantRows) ||
      (fault == MutantFault::kLastSlotIsNone && rows.adapter == launch.slots - 1) ||
      (fault == MutantFault::kFirstGroupSkipped && group == 0 && launch.base_rows > 0)) {
    rows.count = 0;
  }
  if (fault == MutantFault::kPartialTileRowLost && partial) {
    --rows.count;
  }
  if (fault == MutantFault::kGroupIndexAsAdapter) {
    rows.adapter = group;
  }
  if (stale) {
    keep_within(rows, params.tokens, launch.slots);
  }
  if (rows.count == 0) {
    return rows;
  }
  rows.rank = params.rank[fault == MutantFault::kRankOfFirstGroup ? ids[0] : rows.adapter];
  return rows;
}

// A row that belongs to nobody, or to the next group.
template <typename Params>
__device__ void take_row_too_many(MutantTile& rows, const Params& params) {
  const std::int64_t past = rows.position + rows.count;
  if (rows.count > 0 && rows.count < kMutantRows && past < params.tokens) {
    rows.token[rows.count] = params.token_order[past];
    ++rows.count;
  }
}

// The padding of a partial tile stands for row 0 of the batch.
__device__ inline void take_token_zero(MutantTile& rows) {
  for (; rows.count > 0 && rows.count < kMutantRows; ++rows.count) {
    rows.token[rows.count] = 0;
  }
}

__device__ inline float mutant_scale(const MutantLaunch& launch, const float* scale,
                                     std::int64_t adapter) {
  if (launch.fault == MutantFault::kScaleAtBothEnds) {
    return launch.scale[adapter];
  }
  if (scale == nullptr || launch.fault == MutantFault::kScaleSkipped) {
    return 1.0F;
  }
  if (launch.fault == MutantFault::kScaleTwice) {
    return scale[adapter] * scale[adapter];
  }
  if (launch.fault == MutantFault::kScaleTwoPercent) {
    return 1.02F * scale[adapter];
  }
  if (launch.fault == MutantFault::kScaleOfNextSlot) {
    return scale[(adapter + 1) % launch.slots];
  }
  return scale[adapter];
}

constexpr float kLargestE4m3 = 448.0F;

// A number of x, or of A and B, as it is read.
__device__ inline float mutant_x(const MutantLaunch& launch, float x) {
  constexpr float kLeastNormalFp16 = 6.103515625e-05F;
  if (launch.fault == MutantFault::kXSaturatesAt448) {
    return fminf(fmaxf(x, -kLargestE4m3), kLargestE4m3);
  }
  const bool flushed =
      launch.fault == MutantFault::kXFlushesSubnormals && fabsf(x) < kLeastNormalFp16;
  return flushed ? 0.0F : x;
}

__device__ inline float mutant_weight(const MutantLaunch& launch, float weight) {
  return launch.fault == MutantFault::kWeightsSaturateAt448
             ? fminf(fmaxf(weight, -kLargestE4m3), kLargestE4m3)
             : weight;
}

template <typename T>
__device__ float mutant_kept(const std::uint16_t* kept, std::int64_t index) {
  return to_float(reinterpret_cast<const T*>(kept)[index]);
}

// What a fault remembers: the plan of this launch, and x and y of the first one.
template <typename T>
__global__ void mutant_keep(const __grid_constant__ ShrinkParams shrink,
                            const __grid_constant__ ExpandParams expand,
                            const __grid_constant__ MutantLaunch launch) {
  const std::int64_t first = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  if (launch.fault == MutantFault::kStalePlan) {
    for (std::int64_t i = first; i < shrink.tokens; i += step) {
      kept_order[i] = shrink.token_order[i];
    }
    for (std::int64_t i = first; i < shrink.active; i += step) {
      kept_ids[i] = shrink.active_ids[i];
    }
    for (std::int64_t i = first; i <= shrink.active; i += step) {
      kept_starts[i] = shrink.group_starts[i];
    }
    return;
  }
  for (std::int64_t i = first; shrink.x != nullptr && i < launch.x_elements; i += step) {
    kept_x[i % kMutantKept] = static_cast<const std::uint16_t*>(shrink.x)[i];
  }
  for (std::int64_t i = first; expand.y != nullptr && i < launch.y_elements; i += step) {
    kept_y[i % kMutantKept] = static_cast<const std::uint16_t*>(expand.y)[i];
  }
}

}  // namespace lora_bench::kernels
