#include "kernels/panel/panel_tuning.h"

#include <algorithm>
#include <cmath>

#include "kernels/divide_up.h"

namespace lora_bench::kernels {
namespace {

// Tiles that there are, or that any split of the tokens into `active` groups fits into: all groups
// but the first are as small as they can be and still begin a tile.
std::int64_t row_tiles(const PanelShape& shape, std::int64_t rows_per_tile) {
  if (shape.row_tiles.known()) {
    return shape.row_tiles.of(rows_per_tile);
  }
  const std::int64_t groups = std::min(shape.active, shape.tokens);
  return (shape.tokens - groups) / rows_per_tile + groups;
}

// How often the places for blocks are filled. Where row tiles are not known, a few blocks too many
// are no round: not all tiles are there that may be. Where they are, a block too many costs a round
// even if it has few rows, since what takes long in it are the stages that follow one another.
double rounds_of(const PanelShape& shape, std::int64_t blocks, std::int64_t at_once,
                 double too_many) {
  const double rounds = static_cast<double>(blocks) / static_cast<double>(at_once);
  const double whole = std::floor(rounds);
  return !shape.row_tiles.known() && whole > 0 && rounds - whole < too_many ? whole : rounds;
}

// Blocks of so much shared memory that a multiprocessor works on at once.
std::int64_t held(const PanelShape& shape, int blocks, std::int64_t bytes) {
  return std::clamp<std::int64_t>(shape.multiprocessor_bytes / (bytes + 1024), 1, blocks);
}

// What reading a part of h takes grows as the square of the rank; twice as many warps read it where
// they share the lanes.
double reading_lanes(const PanelShape& shape) {
  constexpr std::int64_t kOfAShare = 128;
  return static_cast<double>(shape.max_rank <= kOfAShare ? shape.max_rank * shape.max_rank
                                                         : kOfAShare * kOfAShare / 4);
}

struct ShrinkChoice {
  int tile = kPanelPlain;
  int split = 1;
  int levels = 0;
};

// Microseconds that shrink and what reads its parts would take. Fitted to 220 measured choices on
// nine shapes on an H200; only their ratios matter. Multiprocessors have a rate of bytes, most of
// them from the L2, and one of products; a stage takes a while in any case, which fewer stages hide
// worse. A part is written once, and read by every block of expand for its rows: as many blocks as
// there are places, however many rows there are, one load after another where lanes are many.
double shrink_time(const PanelShape& shape, const ShrinkChoice& choice, std::int64_t row_tiles) {
  constexpr double kBytesATime = 42e3;
  constexpr double kProductsATime = 1.2e6;
  constexpr double kLatency = 2.1;
  constexpr double kStart = 2.2;
  constexpr double kBytesOfParts = 3.1e6;
  constexpr double kReadingParts = 1e-4;  // times the square of the rank
  constexpr double kTooMany = 1.0 / 16;
  const PanelShrinkTile& tile = kPanelShrinkTiles[static_cast<std::size_t>(choice.tile)];
  const std::int64_t lanes = shape.slices * shape.max_rank;
  const std::int64_t held_by_one =
      held(shape, tile.blocks, panel_shrink_bytes(tile, choice.levels));
  const auto stages = static_cast<double>(kChains / choice.split *
                                          divide_up(chain_length(shape.in_features), kPanelDepth));
  const auto round_of = [&](double at_once) {
    return kStart +
           stages * std::max({at_once * (tile.rows + tile.lanes) * kPanelDepth * 2 / kBytesATime,
                              at_once * tile.rows * tile.lanes * kPanelDepth / kProductsATime,
                              kLatency / (tile.stages - 1)});
  };
  const double rounds = rounds_of(shape, row_tiles * divide_up(lanes, tile.lanes) * choice.split,
                                  shape.multiprocessors * held_by_one, kTooMany);
  const auto places = static_cast<double>(held_by_one);
  const double rest = (rounds - std::floor(rounds)) * places;
  return std::floor(rounds) * round_of(places) + (rest > 0 ? round_of(std::max(rest, 1.0)) : 0) +
         panel_parts(choice.levels) *
             (static_cast<double>(shape.tokens * lanes * 4) / kBytesOfParts +
              reading_lanes(shape) * kReadingParts);
}

// The same where a cluster adds the chains and a block has a multiprocessor for itself. Fitted to
// three tiles on 16 steps of 9 to 332 tokens, one to eight adapters of rank 4 to 192. Expand starts
// early on the multiprocessors that are left, which have to be most of them.
double joined_time(const PanelShape& shape, const ShrinkChoice& choice, std::int64_t row_tiles) {
  constexpr double kStart = 2.9;
  constexpr double kOfAStage = 0.083;
  constexpr double kProductsATime = 2.1e6;
  constexpr double kLateExpand = 5.2;
  constexpr double kEnoughTaken = 0.35;
  constexpr double kBytesOfParts = 3.1e6;
  constexpr double kReadingParts = 1e-4;
  const PanelShrinkTile& tile = kPanelShrinkTiles[static_cast<std::size_t>(choice.tile)];
  const std::int64_t lanes = shape.slices * shape.max_rank;
  const std::int64_t stages = divide_up(chain_length(shape.in_features), tile.depth);
  const std::int64_t blocks = row_tiles * divide_up(lanes, tile.lanes) * kChains;
  const double taken = static_cast<double>(blocks) / static_cast<double>(shape.multiprocessors);
  return kStart +
         static_cast<double>(stages) *
             (kOfAStage +
              static_cast<double>(tile.rows * tile.lanes * tile.depth) / kProductsATime) +
         kLateExpand * std::max(taken - kEnoughTaken, 0.0) +
         static_cast<double>(shape.tokens * lanes * 4) / kBytesOfParts +
         reading_lanes(shape) * kReadingParts;
}

// The same of a grouped tile. Fitted to 400 pairs on 52 steps of 200 to 14406 tokens, for what is
// chosen among these and the others. A stage takes what copies and products take together, however
// far ahead copies are. A round begins at once everywhere and ends unevenly; blocks that take long
// leave expand a late start. x and A come from memory once.
double grouped_time(const PanelShape& shape, const ShrinkChoice& choice, std::int64_t row_tiles) {
  constexpr double kBytesATime = 193e3;
  constexpr double kProductsATime = 4.7e6;
  constexpr double kLatency = 3.2;
  constexpr double kStart = 3.3;
  constexpr double kOfARound = 14;
  constexpr double kLateExpand = 0.085;
  constexpr double kTooMany = 1.0 / 16;
  constexpr double kBytesOfMemory = 4e6;
  constexpr double kBytesOfParts = 3.1e6;
  constexpr double kReadingParts = 1e-4;
  const PanelShrinkTile& tile = kPanelShrinkTiles[static_cast<std::size_t>(choice.tile)];
  const std::int64_t lanes = shape.slices * shape.max_rank;
  const std::int64_t places = held(shape, tile.blocks, panel_shrink_bytes(tile, choice.levels));
  const std::int64_t blocks = row_tiles * divide_up(lanes, tile.lanes) * choice.split;
  const std::int64_t at_once = places * shape.multiprocessors;
  const auto stages = static_cast<double>(kChains / choice.split *
                                          divide_up(chain_length(shape.in_features), kPanelDepth));
  const double work = (tile.rows + tile.lanes) * kPanelDepth * 2 / kBytesATime +
                      tile.rows * tile.lanes * kPanelDepth / kProductsATime;
  const auto round_of = [&](std::int64_t beside) {
    return stages * std::max(static_cast<double>(beside) * work, kLatency / tile.stages);
  };
  const double rounds = rounds_of(shape, blocks, at_once, kTooMany);
  const auto whole = static_cast<std::int64_t>(rounds);
  const std::int64_t rest =
      rounds > std::floor(rounds) ? divide_up(blocks % at_once, shape.multiprocessors) : 0;
  const double working = static_cast<double>(whole) * round_of(places) +
                         (rest > 0 ? round_of(rest) : 0) + kOfARound * (std::ceil(rounds) - 1);
  const std::int64_t groups = std::min(shape.active, shape.tokens);
  const std::int64_t weight_bytes = shape.eight_bits ? 1 : 2;
  const auto bytes =
      static_cast<double>((shape.tokens * 2 + groups * lanes * weight_bytes) * shape.in_features);
  return kStart + std::max(working, bytes / kBytesOfMemory) +
         kLateExpand * round_of(whole > 0 ? places : rest) +
         panel_parts(choice.levels) *
             (static_cast<double>(shape.tokens * lanes * 4) / kBytesOfParts +
              reading_lanes(shape) * kReadingParts);
}

// Whether to think of a tile whose chains a cluster adds where nobody asks for it: chains of as
// many stages as were measured, and clusters that all run at once. Clusters of eight blocks that
// have a multiprocessor each do not fill the groups that multiprocessors come in: 15 run on 132.
bool worth_joining(const PanelShape& shape, const ShrinkChoice& choice) {
  constexpr std::int64_t kStages = 4;
  const PanelShrinkTile& tile = kPanelShrinkTiles[static_cast<std::size_t>(choice.tile)];
  const std::int64_t clusters = row_tiles(shape, tile.rows) *
                                divide_up(shape.slices * shape.max_rank, std::int64_t{tile.lanes});
  return divide_up(chain_length(shape.in_features), std::int64_t{tile.depth}) >= kStages &&
         clusters <= shape.multiprocessors / kChains - 1;
}

// Whether the chains of a tile can be shared and added up like that.
bool allowed(const PanelShape& shape, const PanelShrinkSaid& said, const ShrinkChoice& choice) {
  const PanelShrinkTile& tile = kPanelShrinkTiles[static_cast<std::size_t>(choice.tile)];
  if ((said.tile >= 0 && said.tile != choice.tile) ||
      (said.split > 0 && said.split != choice.split) ||
      (said.levels >= 0 && said.levels != choice.levels) ||
      (shape.eight_bits && !eight_bits_take(tile)) ||
      panel_shrink_bytes(tile, choice.levels) > shape.shared_bytes) {
    return false;
  }
  if (tile.grouped &&
      (!shape.groups || shape.in_features <= 0 || choice.levels != kPanelGroupedLevels)) {
    return false;
  }
  if (!tile.joined) {
    return choice.split << choice.levels <= kChains;
  }
  return shape.clusters && shape.in_features > 0 && choice.split == kChains &&
         choice.levels == kChainLevels &&
         (said.tile == choice.tile || (shape.eight_bits && !shape.groups) ||
          (said.split == 0 && said.levels < 0 && worth_joining(shape, choice)));
}

ShrinkChoice choose_shrink(const PanelShape& shape, const PanelShrinkSaid& said) {
  // Few shapes were measured joined: there it took 0.65 to 0.83 of the time of the pair. Shrink is
  // about half of that, so less than this of it might be nothing.
  constexpr double kClearlyLess = 0.9;
  ShrinkChoice best;
  double least = 0;
  ShrinkChoice choice;
  for (std::size_t i = 0; i < kPanelShrinkTiles.size(); ++i) {
    choice.tile = static_cast<int>(i);
    for (choice.split = 1; choice.split <= kChains; choice.split *= 2) {
      for (choice.levels = 0; choice.levels <= kChainLevels; ++choice.levels) {
        if (!allowed(shape, said, choice)) {
          continue;
        }
        const PanelShrinkTile& tile = kPanelShrinkTiles[i];
        const auto time_of = [&](std::int64_t tiles) {
          return tile.joined    ? joined_time(shape, choice, tiles) / kClearlyLess
                 : tile.grouped ? grouped_time(shape, choice, tiles)
                                : shrink_time(shape, choice, tiles);
        };
        // Groups of one length that fill their tiles are as likely as any others.
        double time = time_of(row_tiles(shape, tile.rows));
        if (!shape.row_tiles.known() && shape.tokens % (shape.active * tile.rows) == 0) {
          time = (time + time_of(shape.tokens / tile.rows)) / 2;
        }
        if (best.tile == kPanelPlain || time < least) {
          best = choice;
          least = time;
        }
      }
    }
  }
  return best;
}

// Blocks that share the column tiles of a row tile. A round of blocks takes as long as the longest
// of them, plus its start; few rounds end unevenly. What the first blocks do at their start is work
// that a multiprocessor has nothing to hide behind.
std::int64_t expand_chunks(const PanelShape& shape, const PanelExpandTile& tile,
                           std::int64_t column_tiles) {
  constexpr double kWorkInColumns = 88;
  constexpr double kUneven = 0.12;
  const std::int64_t rows = 16 * tile.warps_of_rows;
  const double columns = tile.wide * tile.warps_of_columns;
  const std::int64_t places = held(shape, tile.blocks, panel_expand_bytes(tile));
  const std::int64_t at_once = shape.multiprocessors * places;
  // A block that has a multiprocessor to itself starts with nothing beside it; one whose warps only
  // bring or only multiply is twice as many warps, half of which do nothing until B has come.
  const double start = places == 1 ? 256 : tile.apart && shape.expand_groups ? 320 : 96;
  const double too_many = places > 1 ? 1.0 / 50 : 0;
  // Where shares of the warps would multiply the lanes, two tiles are taken together (panel_held).
  const std::int64_t together = tile.shares > 1 ? 2 : 1;
  const auto time_of = [&](std::int64_t turns, std::int64_t blocks) {
    turns = divide_up(turns, together) * together;
    const double rounds = std::ceil(rounds_of(shape, blocks, at_once, too_many));
    return (rounds + kUneven) * (static_cast<double>(turns) * columns + start) +
           kWorkInColumns *
               std::min(static_cast<double>(blocks) / static_cast<double>(shape.multiprocessors),
                        static_cast<double>(places));
  };
  // Where it is not known, all row tiles may be there, or as few as there are groups: with either
  // alone a round of blocks
  // more than it reckons with would come now and then, which is dear where rounds are few. Else
  // groups that are larger than a tile seldom end where one does; smaller ones have one each.
  const std::int64_t groups = std::min(shape.active, shape.tokens);
  std::int64_t most = row_tiles(shape, rows);
  std::int64_t fewest = std::max(divide_up(shape.tokens, rows), groups);
  if (shape.row_tiles.known()) {
    fewest = most;
  } else if (places > 1 && fewest == groups) {
    most = fewest;
  } else if (places > 1 && shape.tokens % (groups * rows) != 0) {
    fewest = most;
  }
  std::int64_t best = 1;
  double least = 0;
  for (std::int64_t turns = 1; turns <= column_tiles; turns += 1 + turns / 16) {
    const std::int64_t chunks = divide_up(column_tiles, turns);
    const std::int64_t longest = divide_up(column_tiles, chunks);
    const double time = (time_of(longest, most * chunks) + time_of(longest, fewest * chunks)) / 2;
    if (turns == 1 || time < least) {
      best = chunks;
      least = time;
    }
  }
  return best;
}

}  // namespace

PanelShrinkTuning panel_shrink_tuning(const PanelShape& shape, const PanelShrinkSaid& said) {
  PanelShrinkTuning tuning;
  const std::int64_t lanes = shape.slices * shape.max_rank;
  if (shape.tokens == 0 || shape.active == 0 || lanes == 0) {
    return tuning;
  }
  ShrinkChoice choice;
  if (shape.vectors) {
    choice = choose_shrink(shape, said);
  }
  if (choice.tile == kPanelPlain) {
    tuning.lane_tiles = divide_up(lanes, 8);
    tuning.blocks = row_tiles(shape, 16) * tuning.lane_tiles;
    return tuning;
  }
  const PanelShrinkTile& tile = kPanelShrinkTiles[static_cast<std::size_t>(choice.tile)];
  tuning.tile = choice.tile;
  tuning.split = choice.split;
  tuning.levels = choice.levels;
  tuning.lane_tiles = divide_up(lanes, tile.lanes);
  tuning.blocks = row_tiles(shape, tile.rows) * tuning.lane_tiles * tuning.split;
  tuning.shared_bytes = panel_shrink_bytes(tile, tuning.levels);
  return tuning;
}

PanelExpandTuning panel_expand_tuning(const PanelShape& shape, const std::int64_t* widths,
                                      const PanelExpandSaid& said) {
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
      if ((said.tile < 0 || said.tile == static_cast<int>(i)) &&
          kPanelExpandTiles[i].steps >= steps &&
          (!shape.eight_bits || eight_bits_take(kPanelExpandTiles[i])) &&
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
  tuning.column_tiles = count(std::int64_t{tile.wide} * tile.warps_of_columns);
  tuning.chunks = said.chunks > 0 ? std::min(said.chunks, tuning.column_tiles)
                                  : expand_chunks(shape, tile, tuning.column_tiles);
  tuning.blocks = row_tiles(shape, rows) * tuning.chunks;
  return tuning;
}

std::int64_t panel_workspace_elements(const PanelShape& shape, const PanelShrinkTuning& tuning) {
  return panel_parts(tuning.levels) *
         panel_part_elements(shape.slices, shape.tokens, shape.max_rank);
}

}  // namespace lora_bench::kernels
