#include "kernels/ordered/ordered_tuning.h"

#include <algorithm>

#include "kernels/divide_up.h"

namespace lora_bench::kernels {
namespace {

// Tiles that any split of the tokens into `active` groups fits into: each group has at most one
// that is not full.
std::int64_t row_tiles(std::int64_t tokens, std::int64_t active) {
  return std::min(tokens, tokens / kOrderedRows + active);
}

}  // namespace

OrderedShrinkTuning ordered_shrink_tuning(std::int64_t tokens, std::int64_t active,
                                          std::int64_t slices, std::int64_t max_rank) {
  OrderedShrinkTuning tuning;
  tuning.lane_tiles = divide_up(slices * max_rank, kOrderedLanes);
  tuning.blocks = active == 0 ? 0 : row_tiles(tokens, active) * tuning.lane_tiles;
  return tuning;
}

OrderedExpandTuning ordered_expand_tuning(std::int64_t tokens, std::int64_t active,
                                          std::int64_t slices, const std::int64_t* widths) {
  OrderedExpandTuning tuning;
  for (std::int64_t slice = 0; slice < slices; ++slice) {
    tuning.column_tiles += divide_up(widths[slice], kOrderedColumns);
  }
  tuning.blocks = active == 0 ? 0 : row_tiles(tokens, active) * tuning.column_tiles;
  return tuning;
}

}  // namespace lora_bench::kernels
