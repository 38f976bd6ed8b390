#pragma once

#include <cstdint>

#include "kernels/tile/shrink_tile.h"

namespace lora_bench::kernels {

// What decides a grid; `largest_group` is the most rows that one adapter has.
struct GroupedShape {
  std::int64_t tokens = 0;
  std::int64_t largest_group = 0;
  std::int64_t active = 0;
  std::int64_t slices = 0;
  std::int64_t in_features = 0;
  std::int64_t widest_slice = 0;
  std::int64_t max_rank = 0;
  std::int64_t multiprocessors = 0;
  bool vectors = true;  // operands can be read 16 bytes at a time
};

// A grid of (split x row tiles x lane or column tiles, slices, active adapters).
struct GroupedTuning {
  int rows_per_tile = 16;     // 16 or 64
  int columns_per_tile = 16;  // shrink: lanes, 16 or 64; expand: 128 columns
  int depth = 128;            // numbers of K, or of the rank, in a stage
  std::int64_t row_tiles = 0;
  std::int64_t column_tiles = 0;
  std::int64_t split = 1;  // parts of K, shrink only

  friend bool operator==(const GroupedTuning&, const GroupedTuning&) = default;
};

[[nodiscard]] GroupedTuning grouped_shrink_tuning(const GroupedShape& shape);
[[nodiscard]] GroupedTuning grouped_expand_tuning(const GroupedShape& shape);

// Roundings on the longest path of one sum on tensor cores: each step adds 16 products and what was
// there, at little more than one rounding; warps and parts of K follow one by one.
[[nodiscard]] std::int64_t tile_shrink_depth(std::int64_t in_features, std::int64_t split);
[[nodiscard]] std::int64_t tile_expand_depth(std::int64_t max_rank, bool wide_intermediate);

}  // namespace lora_bench::kernels
