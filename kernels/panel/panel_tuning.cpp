#include "kernels/panel/panel_tuning.h"

#include <algorithm>

#include "kernels/divide_up.h"

namespace lora_bench::kernels {
namespace {

// Tiles that any split of the tokens into `active` groups fits into: each group has at most one
// that is not full.
std::int64_t row_tiles(const PanelShape& shape, std::int64_t rows_per_tile) {
  return std::min(shape.tokens, shape.tokens / rows_per_tile + shape.active);
}

// Those that most batches have: of equal groups.
std::int64_t expected_row_tiles(const PanelShape& shape, std::int64_t rows_per_tile) {
  const std::int64_t groups = std::max<std::int64_t>(std::min(shape.active, shape.tokens), 1);
  return divide_up(divide_up(shape.tokens, groups), rows_per_tile) * groups;
}

// Blocks of so much shared memory that are at work at once.
std::int64_t resident(const PanelShape& shape, int blocks, std::int64_t bytes) {
  const std::int64_t held = shape.multiprocessor_bytes / (bytes + 1024);
  return shape.multiprocessors * std::clamp<std::int64_t>(held, 1, blocks);
}

// The tile with the least to multiply and to read: lanes that nobody needs cost products, every
// lane tile reads x again, rows that a group does not fill cost both.
int shrink_tile(const PanelShape& shape, std::int64_t lanes) {
  constexpr std::int64_t kReadingAgain = 16;  // as much as so many lanes
  int best = kPanelPlain;
  std::int64_t least = 0;
  for (std::size_t i = 0; i < kPanelShrinkTiles.size(); ++i) {
    const PanelShrinkTile& tile = kPanelShrinkTiles[i];
    if (panel_shrink_bytes(tile, true) > shape.shared_bytes) {
      continue;
    }
    const std::int64_t lane_tiles = divide_up(lanes, tile.lanes);
    const std::int64_t cost = expected_row_tiles(shape, tile.rows) * tile.rows * lane_tiles *
                              (tile.lanes + kReadingAgain);
    if (best == kPanelPlain || cost < least) {
      best = static_cast<int>(i);
      least = cost;
    }
  }
  return best;
}

}  // namespace

PanelShrinkTuning panel_shrink_tuning(const PanelShape& shape) {
  PanelShrinkTuning tuning;
  const std::int64_t lanes = shape.slices * shape.max_rank;
  if (shape.tokens == 0 || shape.active == 0 || lanes == 0) {
    return tuning;
  }
  tuning.tile = shape.vectors ? shrink_tile(shape, lanes) : kPanelPlain;
  if (tuning.tile == kPanelPlain) {
    tuning.lane_tiles = divide_up(lanes, 8);
    tuning.blocks = row_tiles(shape, 16) * tuning.lane_tiles;
    return tuning;
  }
  const PanelShrinkTile& tile = kPanelShrinkTiles[static_cast<std::size_t>(tuning.tile)];
  tuning.lane_tiles = divide_up(lanes, tile.lanes);
  const std::int64_t tiles = expected_row_tiles(shape, tile.rows) * tuning.lane_tiles;
  // As few parts of h as leave no multiprocessor without work.
  for (tuning.split = 1; tuning.split < kChains; tuning.split *= 2) {
    const std::int64_t at_once =
        resident(shape, tile.blocks, panel_shrink_bytes(tile, tuning.split < kChains));
    if (3 * tiles * tuning.split >= 2 * at_once) {
      break;
    }
  }
  tuning.shared_bytes = panel_shrink_bytes(tile, tuning.split < kChains);
  tuning.blocks = row_tiles(shape, tile.rows) * tuning.lane_tiles * tuning.split;
  return tuning;
}

PanelExpandTuning panel_expand_tuning(const PanelShape& shape, const std::int64_t* widths) {
  PanelExpandTuning tuning;
  const auto count = [&](std::int64_t columns) {
    std::int64_t tiles = 0;
    for (std::int64_t slice = 0; slice < shape.slices; ++slice) {
      tiles += divide_up(widths[slice], columns);
    }
    return tiles;
  };
  if (shape.tokens == 0 || shape.active == 0 || shape.max_rank == 0 || count(1) == 0) {
    return tuning;
  }
  const std::int64_t steps = divide_up(shape.max_rank, 16);
  if (shape.vectors) {
    for (std::size_t i = 0; i < kPanelExpandTiles.size(); ++i) {
      if (kPanelExpandTiles[i].steps >= steps &&
          panel_expand_bytes(kPanelExpandTiles[i]) <= shape.shared_bytes) {
        tuning.tile = static_cast<int>(i);
        break;
      }
    }
  }
  if (tuning.tile == kPanelPlain) {
    tuning.column_tiles = count(64);
    tuning.chunks = tuning.column_tiles;
    tuning.blocks = row_tiles(shape, 16) * tuning.chunks;
    return tuning;
  }
  const PanelExpandTile& tile = kPanelExpandTiles[static_cast<std::size_t>(tuning.tile)];
  const std::int64_t rows = 16 * tile.warps_of_rows;
  tuning.shared_bytes = panel_expand_bytes(tile);
  tuning.column_tiles = count(std::int64_t{tile.wide} * tile.warps_of_columns);
  // One wave of blocks; where each would have many tiles, more and shorter ones, which end alike.
  // Groups larger than a tile seldom end where a tile does.
  constexpr std::int64_t kMostTurns = 16;
  const std::int64_t at_once = resident(shape, tile.blocks, tuning.shared_bytes);
  const std::int64_t tiles =
      shape.tokens > rows * shape.active ? row_tiles(shape, rows) : expected_row_tiles(shape, rows);
  tuning.chunks = std::clamp(
      std::max((4 * at_once + tiles) / (4 * tiles), divide_up(tuning.column_tiles, kMostTurns)),
      std::int64_t{1}, tuning.column_tiles);
  tuning.blocks = row_tiles(shape, rows) * tuning.chunks;
  return tuning;
}

std::int64_t panel_workspace_elements(const PanelShape& shape) {
  const PanelShrinkTuning tuning = panel_shrink_tuning(shape);
  return panel_parts(tuning.split) *
         panel_part_elements(shape.slices, shape.tokens, shape.max_rank);
}

}  // namespace lora_bench::kernels
