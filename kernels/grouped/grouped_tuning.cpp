#include "kernels/grouped/grouped_tuning.h"

#include <algorithm>

namespace lora_bench::kernels {
namespace {

std::int64_t divide_up(std::int64_t value, std::int64_t by) {
  return value / by + (value % by == 0 ? 0 : 1);
}

// Blocks that keep enough bytes under way on every multiprocessor.
constexpr std::int64_t kBlocksPerMultiprocessor = 3;
// A part of K shorter than this is not worth the sum of parts.
constexpr std::int64_t kLeastPart = 512;

}  // namespace

GroupedTuning grouped_shrink_tuning(const GroupedShape& shape) {
  GroupedTuning tuning;
  if (shape.active == 0 || shape.max_rank == 0 || shape.slices == 0) {
    return tuning;
  }
  tuning.rows_per_tile = shape.vectors && shape.largest_group > 16 ? 64 : 16;
  tuning.columns_per_tile = shape.vectors && shape.max_rank > 16 ? 64 : 16;
  tuning.row_tiles = divide_up(shape.largest_group, tuning.rows_per_tile);
  tuning.column_tiles = divide_up(shape.max_rank, tuning.columns_per_tile);
  const std::int64_t blocks = tuning.row_tiles * tuning.column_tiles * shape.slices * shape.active;
  const std::int64_t wanted = divide_up(kBlocksPerMultiprocessor * shape.multiprocessors,
                                        std::max<std::int64_t>(blocks, 1));
  tuning.split = std::clamp<std::int64_t>(
      wanted, 1, std::max<std::int64_t>(shape.in_features / kLeastPart, 1));
  return tuning;
}

GroupedTuning grouped_expand_tuning(const GroupedShape& shape) {
  GroupedTuning tuning;
  if (shape.active == 0 || shape.widest_slice == 0) {
    return tuning;
  }
  tuning.rows_per_tile = shape.vectors && shape.largest_group > 16 ? 64 : 16;
  tuning.columns_per_tile = 128;
  tuning.depth = shape.vectors && shape.max_rank <= 16 ? 16 : 64;
  tuning.row_tiles = divide_up(shape.largest_group, tuning.rows_per_tile);
  tuning.column_tiles = divide_up(shape.widest_slice, tuning.columns_per_tile);
  return tuning;
}

std::int64_t tile_shrink_depth(std::int64_t in_features, std::int64_t split) {
  constexpr std::int64_t kOneStep = 17;
  constexpr std::int64_t kWarps = 4;
  const std::int64_t steps = divide_up(divide_up(in_features, split) + 128, 16);
  return 2 * steps + kOneStep + kWarps + split;
}

std::int64_t tile_expand_depth(std::int64_t max_rank, bool wide_intermediate) {
  constexpr std::int64_t kOneStep = 17;
  constexpr std::int64_t kScaleBiasAndY = 3;
  constexpr std::int64_t kTerms = 6;  // of an fp32 h: at most three times two
  const std::int64_t steps = divide_up(max_rank, 16) * (wide_intermediate ? kTerms : 1);
  return 2 * steps + kOneStep + kScaleBiasAndY;
}

}  // namespace lora_bench::kernels
