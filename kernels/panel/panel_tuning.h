#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "kernels/chains.h"
#include "kernels/row_tiles.h"

namespace lora_bench::kernels {

// What the choices depend on: limits of the batch, and how many row tiles it has where that is
// known. None of them changes a bit of the result: the order of every sum follows from in_features
// and the rank alone.
struct PanelShape {
  std::int64_t tokens = 0;
  std::int64_t active = 0;  // adapters that may have rows
  std::int64_t slices = 0;
  std::int64_t max_rank = 0;
  std::int64_t in_features = 0;
  std::int64_t multiprocessors = 132;
  std::int64_t shared_bytes = 227 << 10;          // that a block may have
  std::int64_t multiprocessor_bytes = 228 << 10;  // shared memory, of which a block costs 1 KB more
  bool vectors = true;                            // x, A, B and y can be read 16 bytes at a time
  bool clusters = true;                           // sm_90 and up
  bool groups = false;                            // products of four warps: sm_90a
  bool expand_groups = false;                     // of expand: bf16
  bool eight_bits = false;                        // A and B
  RowTiles row_tiles = {};                        // not known: any that tokens and active let be
};

constexpr int kPanelDepth = 64;  // elements of K in a stage

// The tiles that are compiled. Of shrink: rows of one adapter times lanes of all its slices.
// Joined: eight blocks, a chain each, are a cluster that adds them to one part; needs sm_90.
// Grouped: four warps bring, and four multiply together for every 64 rows; a part is a pair of
// chains. Needs code for sm_90a.
struct PanelShrinkTile {
  int rows;
  int lanes;
  int warps_of_rows;
  int warps_of_lanes;
  int stages;
  int blocks;  // that registers let a multiprocessor hold
  bool joined = false;
  int depth = kPanelDepth;
  int warps_that_bring = 0;  // and do nothing else; 0: all bring and multiply
  bool grouped = false;
};
constexpr std::array<PanelShrinkTile, 14> kPanelShrinkTiles = {
    {{32, 32, 2, 2, 8, 2},
     {32, 64, 2, 2, 6, 2},
     {64, 32, 4, 2, 6, 2},
     {64, 48, 2, 2, 4, 3},
     {64, 128, 2, 4, 3, 2},
     {128, 96, 4, 2, 2, 2},
     {128, 192, 4, 2, 3, 1},
     {32, 64, 2, 2, 8, 1, true, 128, 4},
     {64, 48, 4, 2, 6, 1, true, 128, 4},
     {32, 32, 2, 2, 12, 1, true, 128, 4},
     {64, 48, 4, 1, 5, 3, false, 64, 4, true},
     {128, 96, 8, 1, 7, 1, false, 64, 4, true},
     {128, 128, 8, 1, 6, 1, false, 64, 4, true},
     {128, 192, 8, 1, 5, 1, false, 64, 4, true}}};

// Of expand: a warp owns 16 rows and `wide` columns of a tile, and an equal share of the lanes:
// sums go from one share of the warps to the next.
struct PanelExpandTile {
  int steps;  // of 16 lanes: the most that it takes
  int warps_of_rows;
  int warps_of_columns;
  int wide;
  int stages;
  int blocks;
  int shares = 1;
  bool apart = false;  // on sm_90a warps of their own bring B and y
};
constexpr std::array<PanelExpandTile, 6> kPanelExpandTiles = {{{1, 4, 1, 128, 2, 4},
                                                               {2, 4, 1, 64, 3, 4},
                                                               {4, 4, 1, 64, 3, 3},
                                                               {8, 4, 1, 64, 3, 2, 1, true},
                                                               {12, 4, 1, 64, 4, 1, 2},
                                                               {16, 4, 1, 64, 3, 1, 2}}};

// The tiles that are compiled for weights of eight bits, too.
[[nodiscard]] constexpr bool eight_bits_take(const PanelShrinkTile& tile) {
  return tile.joined || tile.grouped;
}
[[nodiscard]] constexpr bool eight_bits_take(const PanelExpandTile& tile) {
  return tile.shares == 1;
}

// The most lanes of a slice that they have.
[[nodiscard]] constexpr std::int64_t panel_lanes_of_eight_bits() {
  std::int64_t steps = 0;
  for (const PanelExpandTile& tile : kPanelExpandTiles) {
    steps = eight_bits_take(tile) ? std::max<std::int64_t>(steps, tile.steps) : steps;
  }
  return 16 * steps;
}
// Grouped tiles have twice as many warps that bring where they widen codes, if the others then have
// registers for their sums.
[[nodiscard]] constexpr int panel_warps_that_bring(const PanelShrinkTile& tile, bool eight_bits) {
  const bool room = tile.grouped && tile.blocks == 1 && tile.lanes <= 128;
  return eight_bits && room ? 2 * tile.warps_that_bring : tile.warps_that_bring;
}

constexpr int kPanelGroupedLevels = 1;  // as many as registers hold

constexpr int kPanelPlain = -1;  // no tile: takes any shape, slowly

// One-dimensional grids; 0 blocks: nothing to do, no launch.
struct PanelShrinkTuning {
  std::int64_t blocks = 0;
  int tile = kPanelPlain;
  std::int64_t lane_tiles = 1;
  int split = 1;              // blocks that share the chains of a tile: 1, 2, 4 or 8; joined: 8
  int levels = kChainLevels;  // a part of h is the sum of 1 << levels chains
  int shared_bytes = 0;

  friend bool operator==(const PanelShrinkTuning&, const PanelShrinkTuning&) = default;
};

struct PanelExpandTuning {
  std::int64_t blocks = 0;
  int tile = kPanelPlain;
  std::int64_t column_tiles = 0;  // of all slices
  std::int64_t chunks = 1;        // blocks that share the column tiles of a row tile

  friend bool operator==(const PanelExpandTuning&, const PanelExpandTuning&) = default;
};

// Parts lie so far apart that their elements do not meet in one bank of the L2.
[[nodiscard]] constexpr std::int32_t panel_parts(int levels) { return kChains >> levels; }
[[nodiscard]] constexpr std::int64_t panel_part_elements(std::int64_t slices, std::int64_t tokens,
                                                         std::int64_t max_rank) {
  return slices * tokens * max_rank + 1056;
}

[[nodiscard]] constexpr int panel_barrier_bytes(const PanelShrinkTile& tile) {
  return tile.joined || tile.grouped ? (2 * tile.stages + (tile.joined ? 1 : 0)) * 8 : 0;
}
[[nodiscard]] constexpr int panel_table_bytes(const PanelShrinkTile& tile) {
  // What follows begins where products of four warps want rows.
  const int begin = tile.joined || tile.grouped ? 1024 : 128;
  const int bytes =
      panel_barrier_bytes(tile) + tile.rows * 4 + tile.lanes * (tile.grouped ? 16 : 8);
  return (bytes + begin - 1) / begin * begin;
}
// In shared memory: what a tile takes, with a sum that waits for its neighbour at each level; or
// with one from each block of the cluster, of an eighth of the tile.
[[nodiscard]] constexpr int panel_shrink_bytes(const PanelShrinkTile& tile, int levels) {
  return panel_table_bytes(tile) + tile.stages * (tile.rows + tile.lanes) * tile.depth * 2 +
         (tile.grouped  ? 0
          : tile.joined ? 1
                        : levels) *
             tile.rows * tile.lanes * 4;
}
[[nodiscard]] constexpr int panel_pitch_of_h(int steps) {  // bytes; rows on different banks
  return steps * 64 + (steps % 2 == 0 ? 64 : 0);
}
[[nodiscard]] constexpr int panel_expand_bytes(const PanelExpandTile& tile) {
  const int rows = 16 * tile.warps_of_rows;
  const int columns = tile.wide * tile.warps_of_columns;
  return (rows * 12 + 1023) / 1024 * 1024 +
         tile.stages * (columns * tile.steps * 32 + rows * columns * 2) +
         std::max(rows * panel_pitch_of_h(tile.steps), (tile.shares - 1) * 2 * rows * columns * 4);
}

// What the warps of a block of expand do: all the same; or some bring what others multiply, and
// for ranks above 128 h lies in shared memory.
enum class PanelExpandKind { kAlike, kApart, kHeld };
struct PanelExpandBlockShape {
  PanelExpandKind kind;
  int warps;
  int stages;
  int shared_bytes;
};
constexpr int kPanelHeldTable = 1024;
constexpr int kPanelHeldPiece = 128 * 128;  // bytes of 128 columns, 64 lanes
// h of 64 rows, of which an element is so many bf16 numbers.
[[nodiscard]] constexpr int panel_held_bytes(int steps, int numbers) {
  return numbers * (steps / 4) * 64 * 128;
}
// `numbers`: of bf16 that an element of h is, 3 for an fp32 h, where four warps multiply together
// (bf16 on sm_90a), else 0; `sums`: of a linear op.
[[nodiscard]] constexpr PanelExpandBlockShape panel_expand_block(const PanelExpandTile& tile,
                                                                 int numbers, bool sums) {
  const bool groups = numbers > 0;
  if (groups && sums && tile.shares > 1) {
    constexpr int kMost = 226 << 10;
    const int rest = kPanelHeldTable + panel_held_bytes(tile.steps, numbers);
    const int stages = (kMost - rest) / kPanelHeldPiece;
    return {PanelExpandKind::kHeld, 12, stages, rest + stages * kPanelHeldPiece};
  }
  const int warps = tile.warps_of_rows * tile.warps_of_columns * tile.shares;
  const bool apart = groups && tile.apart;
  return {apart ? PanelExpandKind::kApart : PanelExpandKind::kAlike, apart ? 2 * warps : warps,
          tile.stages, panel_expand_bytes(tile)};
}

// What a caller says of a launch; -1 and 0 say nothing.
struct PanelShrinkSaid {
  int tile = -1;
  int split = 0;
  int levels = -1;
};
struct PanelExpandSaid {
  int tile = -1;
  std::int64_t chunks = 0;
};

// With what is said, the best of the rest; the plain kernel where nothing fits that is said.
[[nodiscard]] PanelShrinkTuning panel_shrink_tuning(const PanelShape& shape,
                                                    const PanelShrinkSaid& said = {});
// `widths` has shape.slices entries; chunks are at most the column tiles.
[[nodiscard]] PanelExpandTuning panel_expand_tuning(const PanelShape& shape,
                                                    const std::int64_t* widths,
                                                    const PanelExpandSaid& said = {});
// Floats between the two.
[[nodiscard]] std::int64_t panel_workspace_elements(const PanelShape& shape,
                                                    const PanelShrinkTuning& tuning);

}  // namespace lora_bench::kernels
