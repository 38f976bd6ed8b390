#pragma once

#include <cstdint>

namespace lora_bench::kernels {

constexpr int kOrderedRows = 16;      // of a tile
constexpr int kOrderedLanes = 16;     // of a lane tile of shrink
constexpr int kOrderedColumns = 256;  // of a column tile of expand

struct OrderedShrinkTuning {
  std::int64_t blocks = 0;  // 0: nothing to do, no launch
  std::int64_t lane_tiles = 0;

  friend bool operator==(const OrderedShrinkTuning&, const OrderedShrinkTuning&) = default;
};

struct OrderedExpandTuning {
  std::int64_t blocks = 0;
  std::int64_t column_tiles = 0;

  friend bool operator==(const OrderedExpandTuning&, const OrderedExpandTuning&) = default;
};

[[nodiscard]] OrderedShrinkTuning ordered_shrink_tuning(std::int64_t tokens, std::int64_t active,
                                                        std::int64_t slices, std::int64_t max_rank);
// `widths` has `slices` entries.
[[nodiscard]] OrderedExpandTuning ordered_expand_tuning(std::int64_t tokens, std::int64_t active,
                                                        std::int64_t slices,
                                                        const std::int64_t* widths);

}  // namespace lora_bench::kernels
