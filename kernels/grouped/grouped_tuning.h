#pragma once

#include <cstdint>
#include <span>

#include "kernels/tile/shrink_tile.h"

namespace lora_bench::kernels {

// What decides a grid.
struct GroupedShape {
  std::span<const std::int32_t> group_starts;  // of the batch's groups, and where the last one ends
  std::int64_t active = 0;                     // groups of the launch, which may be more
  // The launch serves every batch of `rows` rows: any one group may have all of them, and the
  // starts are not looked at.
  bool any_batch = false;
  std::int64_t rows = 0;
  std::int64_t slices = 0;
  std::int64_t in_features = 0;
  std::int64_t widest_slice = 0;
  std::int64_t max_rank = 0;
  std::int64_t multiprocessors = 0;
  bool vectors = true;  // operands can be read 16 bytes at a time
};

// A grid of (split x row tiles x lane or column tiles, slices, groups).
struct GroupedTuning {
  int rows_per_tile = 16;     // 16 or 64
  int columns_per_tile = 16;  // shrink: lanes, 16 or 64; expand: 128 to 512 columns
  int depth = 128;            // numbers of K, or of the rank, in a stage
  std::int64_t row_tiles = 0;
  std::int64_t column_tiles = 0;
  std::int64_t split = 1;  // parts of K, shrink only

  friend bool operator==(const GroupedTuning&, const GroupedTuning&) = default;
};

[[nodiscard]] GroupedTuning grouped_shrink_tuning(const GroupedShape& shape);
[[nodiscard]] GroupedTuning grouped_expand_tuning(const GroupedShape& shape);

}  // namespace lora_bench::kernels
