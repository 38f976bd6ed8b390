#include "kernels/grouped/grouped_tuning.h"

#include <algorithm>
#include <iterator>

#include "kernels/divide_up.h"
#include "kernels/tile/tile_tuning.h"

namespace lora_bench::kernels {
namespace {

// Blocks that keep enough bytes under way on every multiprocessor.
constexpr std::int64_t kBlocksPerMultiprocessor = 3;
// A part of K shorter than this is not worth the sum of parts.
constexpr std::int64_t kLeastPart = 512;

std::int64_t rows_of_group(const GroupedShape& shape, std::int64_t group) {
  const auto g = static_cast<std::size_t>(group);
  return shape.group_starts[g + 1] - shape.group_starts[g];
}

// Large tiles read weights less often; where most adapters have few rows they would stand empty.
int rows_per_tile_for(const GroupedShape& shape) {
  const std::int64_t rows = shape.any_batch ? shape.rows : shape.group_starts.back();
  return shape.vectors && rows > 16 * shape.active ? 64 : 16;
}

std::int64_t tiles_of_largest_group(const GroupedShape& shape, int rows_per_tile) {
  if (shape.any_batch) {
    return divide_up(shape.rows, rows_per_tile);
  }
  std::int64_t most = 0;
  for (std::int64_t group = 0; group + 1 < std::ssize(shape.group_starts); ++group) {
    most = std::max(most, divide_up(rows_of_group(shape, group), rows_per_tile));
  }
  return most;
}

// Row tiles of all groups that have rows; of any batch as many as its rows fill at least.
std::int64_t occupied_tiles(const GroupedShape& shape, int rows_per_tile) {
  if (shape.any_batch) {
    return divide_up(shape.rows, rows_per_tile);
  }
  std::int64_t tiles = 0;
  for (std::int64_t group = 0; group + 1 < std::ssize(shape.group_starts); ++group) {
    tiles += divide_up(rows_of_group(shape, group), rows_per_tile);
  }
  return tiles;
}

}  // namespace

GroupedTuning grouped_shrink_tuning(const GroupedShape& shape) {
  GroupedTuning tuning;
  if (shape.active == 0 || shape.max_rank == 0 || shape.slices == 0) {
    return tuning;
  }
  tuning.rows_per_tile = rows_per_tile_for(shape);
  tuning.columns_per_tile = shape.vectors && shape.max_rank > 16 ? 64 : 16;
  tuning.row_tiles = tiles_of_largest_group(shape, tuning.rows_per_tile);
  tuning.column_tiles = divide_up(shape.max_rank, tuning.columns_per_tile);
  const std::int64_t blocks =
      occupied_tiles(shape, tuning.rows_per_tile) * tuning.column_tiles * shape.slices;
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
  tuning.rows_per_tile = rows_per_tile_for(shape);
  const ExpandTile tile = expand_tile_for(tuning.rows_per_tile, shape.max_rank, shape.vectors);
  tuning.columns_per_tile = tile.columns;
  tuning.depth = tile.depth;
  tuning.row_tiles = tiles_of_largest_group(shape, tuning.rows_per_tile);
  tuning.column_tiles = divide_up(shape.widest_slice, tuning.columns_per_tile);
  return tuning;
}

}  // namespace lora_bench::kernels
