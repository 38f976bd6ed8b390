#pragma once

#include "kernels/chunked/chunked.h"
#include "kernels/tile/expand_tile.cuh"
#include "kernels/tile/shrink_tile.cuh"

namespace lora_bench::kernels {

// The rows of a segment, or of one of the tiles of a segment that a published form lists; none
// where the segment is the spare one of its group. Each warp counts for itself the groups that
// begin at or before the segment, 32 at a time.
template <typename Params>
__device__ inline GroupRows rows_of_segment(const Params& params, std::int64_t segment, int chunk,
                                            int tiles_of_segment) {
  if (tiles_of_segment > 0) {
    return rows_of_group(params, segment / tiles_of_segment, segment % tiles_of_segment, chunk);
  }
  const int lane = static_cast<int>(threadIdx.x % 32);
  int begun = 0;
  for (int first = 0; first < params.active; first += 32) {
    const int group = first + lane;
    const bool before =
        group < params.active && first_segment(group, params.group_starts[group], chunk) <= segment;
    begun += __popc(__ballot_sync(0xFFFFFFFFU, before));
  }
  const int group = begun - 1;  // group 0 begins at segment 0
  GroupRows rows;
  rows.adapter = params.active_ids[group];
  const std::int64_t start = params.group_starts[group];
  const std::int64_t first = start + (segment - first_segment(group, start, chunk)) * chunk;
  const std::int64_t left = params.group_starts[group + 1] - first;
  rows.count = left >= chunk ? chunk : (left > 0 ? static_cast<int>(left) : 0);
  rows.tokens = params.token_order + first;
  rows.rank = params.rank[rows.adapter];
  return rows;
}

// Grid: (segments, lane tiles). The lanes of all slices stand side by side at the adapter's own
// rank, so that x is read once for all of them. Tile: a segment x lanes, all of K, in stages of
// Shape::kDepth; warps share K (and rows). Barriers: one a stage, two to collect the sums. Bytes: A
// once per segment, x once per lane tile. Bound: memory; few blocks where few segments.
template <typename Shape, bool kVector, typename T>
__global__ void __launch_bounds__(Shape::kThreads)
    chunked_shrink(const __grid_constant__ ShrinkParams params, const bool wide,
                   const int tiles_of_segment) {
  const GroupRows rows = rows_of_segment(params, blockIdx.x, Shape::kRows, tiles_of_segment);
  const std::int64_t first_lane = std::int64_t{blockIdx.y} * Shape::kColumns;
  const std::int64_t left =
      rows.count > 0 ? std::int64_t{params.slices} * rows.rank - first_lane : 0;
  if (left <= 0) {
    return;
  }
  const int lanes = left < Shape::kColumns ? static_cast<int>(left) : Shape::kColumns;
  const auto lane_of = [&](int i) {
    const int packed = static_cast<int>(first_lane) + i;
    return Lane{packed / rows.rank, packed % rows.rank};
  };
  ShrinkStore store;
  store.wide = wide;
  shrink_tile<Shape, kVector, T>(params, store, rows, lanes, lane_of, 0, 0, params.in_features);
}

// Grid: (segments, column tiles of all slices). Tile: a segment x 128 columns of one slice, the
// whole rank. Bytes: B once per segment, h once per column tile, y once. Bound: memory.
template <typename Shape, bool kVector, typename T, typename H>
__global__ void __launch_bounds__(Shape::kThreads)
    chunked_expand(const __grid_constant__ ExpandParams params, const bool vector_y,
                   const int tiles_of_segment) {
  const GroupRows rows = rows_of_segment(params, blockIdx.x, Shape::kRows, tiles_of_segment);
  if (rows.count == 0 || rows.rank == 0) {
    return;
  }
  std::int64_t tile = blockIdx.y;
  std::int64_t slice_start = 0;
  int slice = 0;
  for (;; ++slice) {
    const std::int64_t tiles = (params.width[slice] + Shape::kColumns - 1) / Shape::kColumns;
    if (tile < tiles) {
      break;
    }
    tile -= tiles;
    slice_start += params.width[slice];
  }
  const std::int64_t column = tile * Shape::kColumns;
  const std::int64_t left = params.width[slice] - column;
  const int count = left < Shape::kColumns ? static_cast<int>(left) : Shape::kColumns;
  expand_tile<Shape, kVector, T, H>(params, rows, slice, slice_start, column, count, vector_y);
}

}  // namespace lora_bench::kernels
