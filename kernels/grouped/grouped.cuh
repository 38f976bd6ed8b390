#pragma once

#include "kernels/grouped/grouped.h"
#include "kernels/tile/expand_tile.cuh"
#include "kernels/tile/shrink_tile.cuh"

namespace lora_bench::kernels {

// Grid: (split x row tiles x lane tiles, slices, groups); a block whose group or rank ends
// before its tile leaves at once. Tile: rows x lanes, all of a part of K, in stages of
// Shape::kDepth; warps share K (and rows). Barriers: one a stage, two to collect the sums. Bytes:
// A once per row tile, x once per lane tile and slice. Bound: memory.
template <typename Shape, bool kVector, typename T>
__global__ void __launch_bounds__(Shape::kThreads)
    grouped_shrink(const __grid_constant__ ShrinkParams params, const ShrinkStore store,
                   const GroupedTuning tuning) {
  std::int64_t tile = blockIdx.x;
  const std::int64_t part = tile % tuning.split;
  tile /= tuning.split;
  const std::int64_t first_lane = tile % tuning.column_tiles * Shape::kColumns;
  tile /= tuning.column_tiles;
  const GroupRows rows = rows_of_group(params, blockIdx.z, tile, Shape::kRows);
  if (rows.count == 0 || first_lane >= rows.rank) {
    return;
  }
  const int left = rows.rank - static_cast<int>(first_lane);
  const int lanes = left < Shape::kColumns ? left : Shape::kColumns;
  const std::int64_t steps = (params.in_features + Shape::kDepth - 1) / Shape::kDepth;
  const std::int64_t first = steps * part / tuning.split * Shape::kDepth;
  std::int64_t end = steps * (part + 1) / tuning.split * Shape::kDepth;
  end = end < params.in_features ? end : params.in_features;
  const int slice = static_cast<int>(blockIdx.y);
  const auto lane_of = [&](int i) { return Lane{slice, static_cast<int>(first_lane) + i}; };
  shrink_tile<Shape, kVector, T>(params, store, rows, lanes, lane_of, part, first, end);
}

// Grid: (row tiles x column tiles of the widest slice, slices, groups). Tile: rows x 128
// to 512 columns, the whole rank. Barriers as above. Bytes: B once per row tile, h once per column
// tile, y once. Bound: memory.
template <typename Shape, bool kVector, typename T, typename H>
__global__ void __launch_bounds__(Shape::kThreads)
    grouped_expand(const __grid_constant__ ExpandParams params, const GroupedTuning tuning,
                   const bool vector_y) {
  const int slice = static_cast<int>(blockIdx.y);
  const std::int64_t column = blockIdx.x % tuning.column_tiles * Shape::kColumns;
  const GroupRows rows =
      rows_of_group(params, blockIdx.z, blockIdx.x / tuning.column_tiles, Shape::kRows);
  const std::int64_t left = params.width[slice] - column;
  if (rows.count == 0 || rows.rank == 0 || left <= 0) {
    return;
  }
  std::int64_t slice_start = 0;
  for (int earlier = 0; earlier < slice; ++earlier) {
    slice_start += params.width[earlier];
  }
  const int count = left < Shape::kColumns ? static_cast<int>(left) : Shape::kColumns;
  expand_tile<Shape, kVector, T, H>(params, rows, slice, slice_start, column, count, vector_y);
}

}  // namespace lora_bench::kernels
