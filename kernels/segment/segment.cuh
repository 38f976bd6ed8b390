#pragma once

#include <cstdint>

#include "kernels/params.h"

// Where a block finds its share of a plan: rows of one adapter, columns of one slice.
namespace lora_bench::kernels {

// Which row of x a row of the batch reads.
__device__ inline std::int32_t row_of_x(const ShrinkParams& params, std::int32_t row) {
  return params.token_of_row == nullptr ? row : params.token_of_row[row];
}

// Rows first ... first + rows - 1 of token_order, all of one adapter.
struct Segment {
  std::int64_t adapter = -1;
  std::int64_t first = 0;
  int rows = 0;
};

// The tile of that number, of `rows_per_tile` rows at most, counted over the groups; rows 0 when
// there are fewer. Each warp finds it by itself, 32 groups at a time.
template <typename Params>
__device__ inline Segment find_segment(const Params& params, std::int64_t tile, int rows_per_tile) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int first_group = 0; first_group < params.active; first_group += 32) {
    const int group = first_group + lane;
    std::int32_t start = 0;
    std::int32_t rows = 0;
    std::int32_t id = -1;
    if (group < params.active) {
      start = params.group_starts[group];
      rows = params.group_starts[group + 1] - start;
      id = params.active_ids[group];  // with the others, not after them: one wait for memory
    }
    const int tiles = (rows + rows_per_tile - 1) / rows_per_tile;
    int up_to = tiles;  // of this group and those before it
    for (int distance = 1; distance < 32; distance *= 2) {
      const int other = __shfl_up_sync(0xFFFFFFFFU, up_to, distance);
      up_to += lane >= distance ? other : 0;
    }
    const unsigned later = __ballot_sync(0xFFFFFFFFU, tile < up_to);
    if (later != 0) {
      const int owner = __ffs(static_cast<int>(later)) - 1;
      const int before = __shfl_sync(0xFFFFFFFFU, up_to - tiles, owner);
      start = __shfl_sync(0xFFFFFFFFU, start, owner);
      rows = __shfl_sync(0xFFFFFFFFU, rows, owner);
      const int skipped = (static_cast<int>(tile) - before) * rows_per_tile;
      Segment segment;
      segment.adapter = __shfl_sync(0xFFFFFFFFU, id, owner);
      segment.first = start + skipped;
      segment.rows = rows - skipped < rows_per_tile ? rows - skipped : rows_per_tile;
      return segment;
    }
    tile -= __shfl_sync(0xFFFFFFFFU, up_to, 31);
  }
  return {};
}

// Row `row` of the segment; rows past its end repeat the last one, and are not written.
template <typename Params>
__device__ inline std::int64_t token_of(const Params& params, const Segment& segment, int row) {
  const int clamped = row < segment.rows ? row : segment.rows - 1;
  return params.token_order[segment.first + clamped];
}

// Where a tile of columns lies.
struct ColumnTile {
  std::int64_t slice = 0;
  std::int64_t first = 0;        // column of the slice
  std::int64_t slice_start = 0;  // of the slice in the row of y
};

__device__ inline ColumnTile column_tile(const ExpandParams& params, std::int64_t tile,
                                         std::int64_t columns_per_tile) {
  ColumnTile place;
  place.slice_start = params.first_column;
  for (;; ++place.slice) {
    const std::int64_t width = params.width[place.slice];
    const std::int64_t tiles = (width + columns_per_tile - 1) / columns_per_tile;
    if (tile < tiles) {
      break;
    }
    tile -= tiles;
    place.slice_start += width;
  }
  place.first = tile * columns_per_tile;
  return place;
}

}  // namespace lora_bench::kernels
