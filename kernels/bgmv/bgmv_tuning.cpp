#include "kernels/bgmv/bgmv_tuning.h"

#include <algorithm>

#include "kernels/divide_up.h"

namespace lora_bench::kernels {
namespace {

constexpr std::int64_t kMostBlocks = 2147483647;
// About two for each multiprocessor of a large GPU: below, blocks are made smaller.
constexpr std::int64_t kEnoughBlocks = 264;

// Tiles of `rows_per_tile` that any split of the rows into `active` groups fits into: each group
// has at most one partial tile, so that a captured grid serves every batch of this size.
std::int64_t row_tiles(const BgmvShape& shape, std::int64_t rows_per_tile) {
  return std::min(shape.tokens, shape.tokens / rows_per_tile + shape.active);
}

std::int64_t tiles_of(const BgmvShape& shape, const std::int64_t* widths, std::int64_t columns) {
  std::int64_t tiles = 0;
  for (std::int64_t slice = 0; slice < shape.slices; ++slice) {
    tiles += divide_up(widths[slice], columns);
  }
  return tiles;
}

BgmvShrinkTuning shrink_rows(const BgmvShape& shape) {
  BgmvShrinkTuning tuning;
  const std::int64_t wide = shape.tokens * shape.slices * divide_up(shape.max_rank, 4);
  const bool enough = wide >= kEnoughBlocks;
  tuning.lanes_per_block = enough ? 4 : 1;
  tuning.blocks = enough ? wide : shape.tokens * shape.slices * shape.max_rank;
  tuning.blocks = std::min(tuning.blocks, kMostBlocks);
  return tuning;
}

BgmvShrinkTuning shrink_segments(const BgmvShape& shape) {
  BgmvShrinkTuning tuning;
  tuning.form = BgmvForm::kSegments;
  const std::int64_t lanes = shape.slices * shape.max_rank;
  const auto blocks = [&](int row_fragments, int lane_fragments) {
    tuning.row_fragments = row_fragments;
    tuning.lane_fragments = lane_fragments;
    tuning.lane_tiles = divide_up(lanes, 8 * lane_fragments);
    tuning.blocks = row_tiles(shape, 16 * row_fragments) * tuning.lane_tiles;
    return tuning.blocks;
  };
  // The larger the tile, the less often x and A are read; the smaller, the more multiprocessors
  // read them.
  if (lanes <= 16 || (blocks(2, 8) < kEnoughBlocks && blocks(1, 8) < kEnoughBlocks / 2)) {
    if (blocks(2, 2) < kEnoughBlocks) {
      blocks(1, 2);
    }
  } else if (blocks(2, 8) < kEnoughBlocks) {
    blocks(1, 8);
  }
  return tuning;
}

}  // namespace

BgmvForm bgmv_form(std::int64_t rows, std::int64_t active) {
  return active > 0 && rows >= kRowsOfASegment * active ? BgmvForm::kSegments : BgmvForm::kRows;
}

BgmvShrinkTuning bgmv_shrink_tuning(const BgmvShape& shape) {
  return bgmv_form(shape.rows, shape.active) == BgmvForm::kSegments ? shrink_segments(shape)
                                                                    : shrink_rows(shape);
}

BgmvExpandTuning bgmv_expand_tuning(const BgmvShape& shape, const std::int64_t* widths) {
  BgmvExpandTuning tuning;
  tuning.form = bgmv_form(shape.rows, shape.active);
  if (tuning.form == BgmvForm::kSegments) {
    tuning.columns_per_tile = kSgmvExpandColumns;
    tuning.column_tiles = tiles_of(shape, widths, tuning.columns_per_tile);
    tuning.blocks = row_tiles(shape, kSgmvExpandRows) * tuning.column_tiles;
    return tuning;
  }
  tuning.columns_per_tile = 256;
  while (tuning.columns_per_tile > 32 &&
         shape.tokens * tiles_of(shape, widths, tuning.columns_per_tile) < kEnoughBlocks) {
    tuning.columns_per_tile /= 2;
  }
  tuning.column_tiles = tiles_of(shape, widths, tuning.columns_per_tile);
  tuning.blocks = std::min(shape.tokens * tuning.column_tiles, kMostBlocks);
  return tuning;
}

std::int64_t bgmv_shrink_depth(BgmvForm form, std::int64_t in_features) {
  if (form == BgmvForm::kSegments) {
    constexpr std::int64_t kLevels = 3;  // of the tree over eight warps
    return divide_up(in_features, kSgmvShrinkThreads) * 32 + kLevels;
  }
  constexpr std::int64_t kShufflesAndWarps = 5 + 3;
  return divide_up(in_features, kBgmvThreads * kBgmvVector) * kBgmvVector + kShufflesAndWarps;
}

std::int64_t bgmv_expand_depth(BgmvForm form, std::int64_t max_rank, bool fp32_h) {
  constexpr std::int64_t kBiasAndY = 2;
  if (form == BgmvForm::kSegments) {
    const std::int64_t parts = fp32_h ? 3 : 1;
    return parts * max_rank + kBiasAndY;
  }
  constexpr std::int64_t kShuffles = 5;
  return divide_up(max_rank, 32 * kBgmvVector) * kBgmvVector + kShuffles + kBiasAndY;
}

}  // namespace lora_bench::kernels
