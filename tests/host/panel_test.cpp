#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/random.h"
#include "kernels/panel/panel_tuning.h"
#include "support/panel_shapes.h"

using namespace lora_bench::kernels;
using namespace lora_bench::test;

namespace {

std::int64_t drawn(std::uint64_t index, std::uint64_t bound) {
  return static_cast<std::int64_t>(lora_bench::random_below(13, 1, index, bound));
}

// Rows of each adapter, and what the tuning is told of them.
struct Batch {
  std::vector<std::int64_t> rows;
  std::vector<std::int64_t> widths;
  PanelShape shape;
};

Batch batch_of(std::uint64_t index) {
  Batch batch;
  PanelShape& shape = batch.shape;
  shape.active = 1 + drawn(10 * index, 20);
  const auto most_rows = static_cast<std::uint64_t>(1 + drawn(10 * index + 1, 400));
  for (std::int64_t group = 0; group < shape.active; ++group) {
    batch.rows.push_back(1 +
                         drawn(9000 + 20 * index + static_cast<std::uint64_t>(group), most_rows));
    shape.tokens += batch.rows.back();
  }
  shape.tokens += drawn(10 * index + 2, 50);
  shape.slices = 1 + drawn(10 * index + 3, 8);
  shape.max_rank = 1 + drawn(10 * index + 4, 200);
  shape.in_features = 1 + drawn(10 * index + 5, 20000);
  shape.multiprocessors = 1 + drawn(10 * index + 6, 160);
  shape.vectors = drawn(10 * index + 7, 4) > 0;
  shape.groups = index % 2 == 0;
  if (drawn(10 * index + 8, 3) == 0) {
    shape.shared_bytes = 99 << 10;
    shape.multiprocessor_bytes = 100 << 10;
  }
  for (std::int64_t slice = 0; slice < shape.slices; ++slice) {
    batch.widths.push_back(drawn(20000 + 10 * index + static_cast<std::uint64_t>(slice), 3000));
  }
  return batch;
}

std::int64_t tiles_needed(const Batch& batch, std::int64_t rows_per_tile) {
  std::int64_t tiles = 0;
  for (const std::int64_t rows : batch.rows) {
    tiles += (rows + rows_per_tile - 1) / rows_per_tile;
  }
  return tiles;
}

}  // namespace

TEST_CASE("panel: what a block adds up is a part less") {
  CHECK(panel_parts(0) == kChains);
  CHECK(panel_parts(1) == 4);
  CHECK(panel_parts(2) == 2);
  CHECK(panel_parts(kChainLevels) == 1);
}

TEST_CASE("panel: blocks for every tile that any groups can make, within the shared memory") {
  for (std::uint64_t i = 0; i < 500; ++i) {
    const Batch batch = batch_of(i);
    const PanelShape& shape = batch.shape;
    const std::int64_t lanes = shape.slices * shape.max_rank;
    const PanelShrinkTuning shrink = panel_shrink_tuning(shape);
    CAPTURE(i);
    const bool plain = shrink.tile == kPanelPlain;
    CHECK(plain == !shape.vectors);
    const auto& tile = kPanelShrinkTiles[static_cast<std::size_t>(plain ? 0 : shrink.tile)];
    const std::int64_t lanes_of_tile = plain ? 8 : tile.lanes;
    CHECK(shrink.lane_tiles * lanes_of_tile >= lanes);
    CHECK((shrink.lane_tiles - 1) * lanes_of_tile < lanes);
    CHECK(kChains % shrink.split == 0);
    CHECK((plain || tile.joined || panel_parts(shrink.levels) >= shrink.split));
    CHECK((plain || !tile.joined || (shrink.split == kChains && panel_parts(shrink.levels) == 1)));
    CHECK(shrink.blocks >=
          tiles_needed(batch, plain ? 16 : tile.rows) * shrink.lane_tiles * shrink.split);
    CHECK(shrink.shared_bytes <= shape.shared_bytes);
    CHECK(panel_workspace_elements(shape, shrink) >=
          panel_parts(shrink.levels) * shape.slices * shape.tokens * shape.max_rank);

    const PanelExpandTuning expand = panel_expand_tuning(shape, batch.widths.data());
    const bool plainly = expand.tile == kPanelPlain;
    CHECK((plainly ||
           16 * kPanelExpandTiles[static_cast<std::size_t>(expand.tile)].steps >= shape.max_rank));
    const auto& wide = kPanelExpandTiles[static_cast<std::size_t>(plainly ? 0 : expand.tile)];
    const std::int64_t columns = plainly ? 64 : std::int64_t{wide.wide} * wide.warps_of_columns;
    std::int64_t column_tiles = 0;
    for (const std::int64_t width : batch.widths) {
      column_tiles += (width + columns - 1) / columns;
    }
    CHECK(expand.column_tiles == column_tiles);
    CHECK(expand.chunks >= (column_tiles > 0 ? 1 : 0));
    CHECK(expand.chunks <= column_tiles + 1);
    CHECK(expand.blocks >= tiles_needed(batch, plainly ? 16 : 16 * wide.warps_of_rows) *
                               (column_tiles > 0 ? expand.chunks : 0));
    CHECK((plainly || panel_expand_block(wide, 0, true).shared_bytes <= shape.shared_bytes));
    CHECK(panel_expand_block(wide, 3, true).shared_bytes <= 227 << 10);  // sm_90a has as much
  }
}

TEST_CASE("panel: all lanes of the slices share x where that is worth the products") {
  CHECK(panel_shrink_tuning(shape_of(2048, 1, 3, 16)).lane_tiles == 1);
  CHECK(panel_shrink_tuning(shape_of(8192, 8, 2, 16)).lane_tiles == 1);
  CHECK(panel_shrink_tuning(shape_of(4096, 4, 3, 64)).lane_tiles == 1);
}

TEST_CASE("panel: few rows are cut into more blocks than many") {
  PanelShape few = shape_of(256, 1, 1, 64);
  few.clusters = false;
  CHECK(panel_shrink_tuning(few).split == kChains);
  CHECK(panel_shrink_tuning(few).blocks >= 96);
  CHECK(panel_shrink_tuning(few).blocks <= few.multiprocessors);
  CHECK(panel_shrink_tuning(shape_of(65536, 8, 2, 16)).split == 1);
  CHECK(panel_parts(panel_shrink_tuning(shape_of(65536, 8, 2, 16)).levels) == 1);
}

TEST_CASE("panel: no row tile is launched that one group cannot need") {
  for (const std::int64_t tokens : {std::int64_t{32}, std::int64_t{33}, std::int64_t{256}}) {
    const PanelShrinkTuning tuning = panel_shrink_tuning(shape_of(tokens, 1, 1, 16));
    const std::int64_t rows = kPanelShrinkTiles[static_cast<std::size_t>(tuning.tile)].rows;
    CHECK(tuning.blocks == (tokens + rows - 1) / rows * tuning.lane_tiles * tuning.split);
  }
}

// 64 row tiles of 48 column tiles on 528 places: seven chunks would leave 80 of them empty, nine
// would need a second round.
TEST_CASE("panel: chunks fill the places that there are") {
  const std::vector<std::int64_t> widths{4096, 1024, 1024};
  const PanelExpandTuning tuning = panel_expand_tuning(shape_of(4096, 1, 3, 16), widths.data());
  CHECK(tuning.column_tiles == 48);
  CHECK(tuning.chunks == 8);
  CHECK(panel_expand_tuning(shape_of(256, 1, 3, 16), widths.data()).chunks > tuning.chunks);
}

// Each block of expand reads all parts of its rows, so with ranks of 128 few parts are worth a
// slower shrink.
TEST_CASE("panel: high ranks leave shrink in few parts") {
  CHECK(panel_parts(panel_shrink_tuning(shape_of(2048, 32, 1, 128)).levels) <= 4);
  CHECK(panel_parts(panel_shrink_tuning(shape_of(2048, 1, 3, 16)).levels) == kChains);
}

// 4096 tokens of 16 adapters are 64 row tiles of 64 where all have as many, and up to 79 else:
// eight chunks fill 528 places with the former, and leave blocks for a second round with the
// latter, as four prompts of 992 beside 128 tokens of decode do. Measured: 73 and 86 us with eight
// chunks, 63 and 70 with six.
TEST_CASE("panel: groups that might fill their tiles, or not, are reckoned with as both") {
  const std::vector<std::int64_t> qkv{4096, 1024, 1024};
  CHECK(panel_expand_tuning(shape_of(4096, 16, 3, 32), qkv.data()).chunks == 6);
  const PanelShrinkTuning shrink = panel_shrink_tuning(shape_of(4096, 16, 3, 32));
  CHECK(kPanelShrinkTiles[static_cast<std::size_t>(shrink.tile)].lanes == 48);
  CHECK(shrink.split == 2);
  PanelShape down = shape_of(4096, 16, 1, 32);
  down.in_features = 14336;
  const std::vector<std::int64_t> widths{4096};
  CHECK(panel_expand_tuning(down, widths.data()).chunks == 6);
}

TEST_CASE("panel: where the groups are known there is a block for each tile and none too many") {
  for (std::uint64_t i = 0; i < 500; ++i) {
    Batch batch = batch_of(i);
    batch.shape.row_tiles = tiles_of(batch.rows);
    CAPTURE(i);
    const PanelShrinkTuning shrink = panel_shrink_tuning(batch.shape);
    const bool plain = shrink.tile == kPanelPlain;
    const auto& tile = kPanelShrinkTiles[static_cast<std::size_t>(plain ? 0 : shrink.tile)];
    CHECK(shrink.blocks ==
          tiles_needed(batch, plain ? 16 : tile.rows) * shrink.lane_tiles * shrink.split);
    const PanelExpandTuning expand = panel_expand_tuning(batch.shape, batch.widths.data());
    const bool plainly = expand.tile == kPanelPlain;
    const auto& wide = kPanelExpandTiles[static_cast<std::size_t>(plainly ? 0 : expand.tile)];
    CHECK(expand.blocks == tiles_needed(batch, plainly ? 16 : 16 * wide.warps_of_rows) *
                               (expand.column_tiles > 0 ? expand.chunks : 0));
  }
}

// Measured, the pair: 39.3 us instead of 42.9 and 266 instead of 272 than with what any groups get.
TEST_CASE("panel: groups that are known to fill their tiles leave no room for others") {
  PanelShape o = shape_of(2048, 32, 1, 128);
  o.row_tiles = tiles_of(std::vector<std::int64_t>(32, 64));
  const PanelShrinkTuning shrink = panel_shrink_tuning(o);
  CHECK(kPanelShrinkTiles[static_cast<std::size_t>(shrink.tile)].rows == 32);
  CHECK(panel_parts(shrink.levels) == 2);
  CHECK(shrink.blocks == 256);

  const std::vector<std::int64_t> gate_up{14336, 14336};
  PanelShape wide = shape_of(8192, 8, 2, 16);
  wide.row_tiles = tiles_of(std::vector<std::int64_t>(8, 1024));
  CHECK(panel_expand_tuning(wide, gate_up.data()).chunks == 16);
  CHECK(panel_expand_tuning(shape_of(8192, 8, 2, 16), gate_up.data()).chunks == 15);
}

// Four prompts of 992 beside 128 tokens of decode: 77 row tiles, for which eight chunks would be a
// second round of blocks. With 64, which groups of one length make, there is room for eight.
TEST_CASE("panel: groups that are known to leave rests have chunks for all of these") {
  const std::vector<std::int64_t> widths{4096, 1024, 1024};
  PanelShape shape = shape_of(4096, 16, 3, 32);
  shape.row_tiles = tiles_of({1029, 1011, 1005, 1003, 13, 11, 10, 9, 7, 6, 5, 5, 4, 4, 3, 3});
  CHECK(panel_expand_tuning(shape, widths.data()).chunks == 6);
  CHECK(kPanelShrinkTiles[static_cast<std::size_t>(panel_shrink_tuning(shape).tile)].lanes == 48);
  shape.row_tiles = tiles_of(std::vector<std::int64_t>(16, 256));
  CHECK(panel_expand_tuning(shape, widths.data()).chunks == 8);
}

// Measured: 68.2 us with seven chunks for 76 row tiles, which are four blocks more than places, and
// 55.9 with six.
TEST_CASE("panel: a block more than find a place is a round where the groups are known") {
  const std::vector<std::int64_t> widths{4096, 1024, 1024};
  PanelShape shape = shape_of(4096, 16, 3, 32);
  shape.row_tiles = tiles_of({1024, 1024, 1024, 992, 3, 3, 3, 3, 2, 3, 3, 2, 3, 3, 2, 2});
  CHECK(shape.row_tiles.of(64) == 76);
  CHECK(panel_expand_tuning(shape, widths.data()).chunks == 6);
}

// A block for each column tile would find another on its multiprocessor.
TEST_CASE("panel: few rows leave a multiprocessor one block that starts") {
  const std::vector<std::int64_t> widths{4096};
  const PanelExpandTuning tuning = panel_expand_tuning(shape_of(256, 1, 1, 64), widths.data());
  CHECK(tuning.chunks == 32);
  CHECK(tuning.blocks <= 132);
}

// Measured, the pair: 9.9 us instead of 15.2, and 7.5 instead of 11.0.
TEST_CASE("panel: a cluster adds the chains where blocks are few and parts of h are dear") {
  const auto tile_of = [](const PanelShape& shape) {
    return kPanelShrinkTiles[static_cast<std::size_t>(panel_shrink_tuning(shape).tile)];
  };
  PanelShape down = shape_of(256, 1, 1, 64);
  down.in_features = 14336;
  const PanelShrinkTuning tuning = panel_shrink_tuning(down);
  CHECK(tile_of(down).joined);
  CHECK(tile_of(down).rows == 32);
  CHECK(tile_of(down).lanes == 64);
  CHECK(tuning.blocks == 64);
  CHECK(tuning.split == kChains);
  CHECK(panel_parts(tuning.levels) == 1);
  CHECK(tuning.shared_bytes == 205824);
  CHECK(panel_workspace_elements(down, tuning) == 256 * 64 + 1056);

  const PanelShape qkv = shape_of(128, 1, 3, 64);
  CHECK(tile_of(qkv).joined);
  CHECK(tile_of(qkv).rows == 64);
  CHECK(tile_of(qkv).lanes == 48);
  CHECK(panel_shrink_tuning(qkv).blocks == 64);
  CHECK(panel_shrink_tuning(qkv).shared_bytes == 185344);
}

// Measured, the pair: 12.2 us instead of 14.6 and, with few lanes, 5.7 instead of 6.9.
TEST_CASE("panel: a cluster adds the chains of two adapters too, of few lanes in small tiles") {
  PanelShape down = shape_of(512, 2, 1, 32);
  down.in_features = 14336;
  down.row_tiles = tiles_of({256, 256});
  const auto& tile = kPanelShrinkTiles[static_cast<std::size_t>(panel_shrink_tuning(down).tile)];
  CHECK(tile.joined);
  CHECK(tile.rows == 64);
  PanelShape o = shape_of(143, 2, 1, 16);
  o.row_tiles = tiles_of({73, 70});
  const PanelShrinkTuning few = panel_shrink_tuning(o);
  CHECK(kPanelShrinkTiles[static_cast<std::size_t>(few.tile)].joined);
  CHECK(kPanelShrinkTiles[static_cast<std::size_t>(few.tile)].lanes == 32);
  CHECK(few.blocks == 48);
}

// Measured, the pair: 9.99 us instead of 11.94 with tiles of 32 x 32, and 7.13 instead of 9.43, or
// 7.78 with 32 x 64. The first leave expand 36 multiprocessors, and 20 and 76.
TEST_CASE("panel: larger tiles where small ones would leave expand too few multiprocessors") {
  const auto tile_of = [](const PanelShape& shape) {
    return kPanelShrinkTiles[static_cast<std::size_t>(panel_shrink_tuning(shape).tile)];
  };
  PanelShape o = shape_of(332, 2, 1, 16);
  o.in_features = 8192;
  o.row_tiles = tiles_of({258, 74});
  CHECK(tile_of(o).joined);
  CHECK(tile_of(o).rows == 64);
  CHECK(panel_shrink_tuning(o).blocks == 56);
  PanelShape qkv = shape_of(165, 2, 3, 12);
  qkv.in_features = 5120;
  qkv.row_tiles = tiles_of({97, 68});
  CHECK(tile_of(qkv).joined);
  CHECK(tile_of(qkv).rows == 64);
  CHECK(panel_shrink_tuning(qkv).blocks == 32);
}

TEST_CASE("panel: no cluster adds chains where none runs, where they wait, or gain little") {
  const auto joined = [](const PanelShape& shape, const PanelShrinkSaid& said = {}) {
    const int tile = panel_shrink_tuning(shape, said).tile;
    return tile != kPanelPlain && kPanelShrinkTiles[static_cast<std::size_t>(tile)].joined;
  };
  PanelShape down = shape_of(256, 1, 1, 64);
  down.in_features = 14336;
  CHECK(joined(down));
  const int tile =
      static_cast<int>(std::find_if(kPanelShrinkTiles.begin(), kPanelShrinkTiles.end(),
                                    [](const PanelShrinkTile& each) { return each.joined; }) -
                       kPanelShrinkTiles.begin());
  const auto but = [&](const auto& change) {
    PanelShape shape = down;
    change(shape);
    return shape;
  };
  CHECK_FALSE(joined(but([](PanelShape& s) { s.clusters = false; })));
  CHECK_FALSE(joined(but([](PanelShape& s) { s.clusters = false; }), {.tile = tile}));
  CHECK_FALSE(joined(but([](PanelShape& s) { s.vectors = false; }), {.tile = tile}));
  CHECK_FALSE(joined(but([](PanelShape& s) { s.shared_bytes = 163 << 10; })));
  CHECK_FALSE(joined(but([](PanelShape& s) { s.in_features = 2048; })));
  CHECK(joined(but([](PanelShape& s) { s.in_features = 2048; }), {.tile = tile}));
  CHECK_FALSE(joined(but([](PanelShape& s) { s.in_features = 0; }), {.tile = tile}));
  CHECK_FALSE(joined(but([](PanelShape& s) { s.tokens = 1024; })));
  CHECK_FALSE(joined(but([](PanelShape& s) { s.active = 16; })));
  CHECK_FALSE(joined(but([](PanelShape& s) { s.multiprocessors = 64; })));
  CHECK_FALSE(joined(down, {.split = 8}));
  CHECK_FALSE(joined(shape_of(512, 1, 1, 16)));
  CHECK_FALSE(joined(shape_of(2048, 1, 3, 16)));
  CHECK_FALSE(joined(shape_of(4096, 4, 3, 64)));
  CHECK(panel_shrink_tuning(down, {.tile = tile, .split = 4}).tile == kPanelPlain);
}

// Measured, the pair: 53.1 us instead of 60.1, 52.4 instead of 56.7 and 148 instead of 164.6.
TEST_CASE("panel: four warps multiply together where lanes and rows are many") {
  const auto chosen = [](PanelShape shape, const std::vector<std::int64_t>& rows) {
    shape.groups = true;
    shape.row_tiles = tiles_of(rows);
    return panel_shrink_tuning(shape);
  };
  const auto tile_of = [](const PanelShrinkTuning& tuning) {
    return kPanelShrinkTiles[static_cast<std::size_t>(tuning.tile)];
  };
  const PanelShrinkTuning qkv =
      chosen(shape_of(4096, 4, 3, 64), std::vector<std::int64_t>(4, 1024));
  CHECK(tile_of(qkv).grouped);
  CHECK(tile_of(qkv).rows == 128);
  CHECK(tile_of(qkv).lanes == 192);
  CHECK(qkv.split == 4);
  CHECK(panel_parts(qkv.levels) == 4);
  CHECK(qkv.blocks == 128);
  CHECK(qkv.shared_bytes == 208896);
  const PanelShrinkTuning mixed = chosen(
      shape_of(4096, 16, 3, 32), {1029, 1011, 1005, 1003, 13, 11, 10, 9, 7, 6, 5, 5, 4, 4, 3, 3});
  CHECK(tile_of(mixed).grouped);
  CHECK(mixed.split == 2);
  const PanelShrinkTuning o =
      chosen(shape_of(11340, 18, 1, 128), std::vector<std::int64_t>(18, 630));
  CHECK(tile_of(o).grouped);
  CHECK(tile_of(o).lanes == 128);
  CHECK(o.split == 1);
}

// Measured, the pair: 22.4 us grouped instead of 21.9, 272 instead of 269, 40.5 instead of 39.8
// and, where x does not stay in the L2, 130 instead of 114.
TEST_CASE(
    "panel: four warps do not multiply together where lanes are few or memory is waited for") {
  const auto grouped = [](PanelShape shape, const PanelShrinkSaid& said = {}) {
    shape.groups = true;
    const int tile = panel_shrink_tuning(shape, said).tile;
    return tile != kPanelPlain && kPanelShrinkTiles[static_cast<std::size_t>(tile)].grouped;
  };
  CHECK_FALSE(grouped(shape_of(2048, 1, 3, 16)));
  CHECK_FALSE(grouped(shape_of(8192, 8, 2, 16)));
  CHECK_FALSE(grouped(shape_of(256, 1, 1, 64)));
  PanelShape o = shape_of(2048, 32, 1, 128);
  o.row_tiles = tiles_of(std::vector<std::int64_t>(32, 64));
  CHECK_FALSE(grouped(o));
  PanelShape down = shape_of(6840, 40, 1, 48);
  down.in_features = 14336;
  down.row_tiles = tiles_of(std::vector<std::int64_t>(40, 171));
  CHECK_FALSE(grouped(down));
}

TEST_CASE(
    "panel: a grouped tile is taken where there is code for it, with a pair of chains a part") {
  const auto* const first = std::find_if(kPanelShrinkTiles.begin(), kPanelShrinkTiles.end(),
                                         [](const PanelShrinkTile& each) { return each.grouped; });
  const auto tile = static_cast<int>(first - kPanelShrinkTiles.begin());
  PanelShape shape = shape_of(512, 1, 1, 16);
  CHECK(panel_shrink_tuning(shape, {.tile = tile}).tile == kPanelPlain);
  shape.groups = true;
  CHECK(panel_shrink_tuning(shape, {.tile = tile}).tile == tile);
  CHECK(panel_parts(panel_shrink_tuning(shape, {.tile = tile}).levels) == 4);
  CHECK(panel_shrink_tuning(shape, {.tile = tile, .split = 8}).tile == kPanelPlain);
  CHECK(panel_shrink_tuning(shape, {.tile = tile, .levels = 2}).tile == kPanelPlain);
  PanelShape nothing = shape;
  nothing.in_features = 0;
  CHECK(panel_shrink_tuning(nothing, {.tile = tile}).tile == kPanelPlain);
  shape.vectors = false;
  CHECK(panel_shrink_tuning(shape, {.tile = tile}).tile == kPanelPlain);
}

TEST_CASE("panel: warps share the lanes of ranks above 128, where a block has memory for it") {
  const std::vector<std::int64_t> widths{4096};
  const auto tile_of = [&](std::int64_t rank, std::int64_t shared_bytes) {
    PanelShape shape = shape_of(2048, 1, 1, rank);
    shape.shared_bytes = shared_bytes;
    return panel_expand_tuning(shape, widths.data()).tile;
  };
  const auto lanes_of = [&](std::int64_t rank) {
    const auto& tile = kPanelExpandTiles[static_cast<std::size_t>(tile_of(rank, 227 << 10))];
    CHECK(tile.shares == (rank > 128 ? 2 : 1));
    return 16 * tile.steps;
  };
  CHECK(lanes_of(128) == 128);
  CHECK(lanes_of(132) == 192);
  CHECK(lanes_of(192) == 192);
  CHECK(lanes_of(256) == 256);
  CHECK(tile_of(192, 163 << 10) == kPanelPlain);
}

// Measured, expand alone: 10.4 us instead of 15.4, and 9.6 instead of 15.8.
TEST_CASE("panel: blocks of ranks above 128 have column tiles in pairs") {
  PanelShape shape = shape_of(119, 2, 3, 256);
  shape.row_tiles = tiles_of({118, 1});
  CHECK(panel_expand_tuning(shape, std::vector<std::int64_t>{5120, 1280, 1280}.data()).chunks ==
        30);
  shape = shape_of(79, 2, 3, 192);
  shape.row_tiles = tiles_of({40, 39});
  CHECK(panel_expand_tuning(shape, std::vector<std::int64_t>{8192, 1024, 1024}.data()).chunks ==
        40);
}

// Measured, the pair: 93.9 us instead of 101.1 with 21 chunks; 130.5 instead of 131.4 with 8.
TEST_CASE(
    "panel: where others bring what four warps multiply, one round of blocks is worth long "
    "chunks") {
  PanelShape shape = shape_of(902, 17, 2, 128);
  shape.expand_groups = true;
  std::vector<std::int64_t> rows(8, 72);
  rows.insert(rows.end(), 8, 36);
  rows.push_back(38);
  shape.row_tiles = tiles_of(rows);
  const std::vector<std::int64_t> gate_up{14336, 14336};
  const auto chunks_of = [&](const std::vector<std::int64_t>& widths) {
    return panel_expand_tuning(shape, widths.data()).chunks;
  };
  CHECK(chunks_of(gate_up) == 10);
  shape.expand_groups = false;
  CHECK(chunks_of(gate_up) == 21);
  shape = shape_of(186, 63, 3, 128);
  shape.expand_groups = true;
  shape.row_tiles = tiles_of(std::vector<std::int64_t>(63, 2));
  CHECK(chunks_of({8192, 1024, 1024}) == 4);
}

TEST_CASE("panel: ranks above 256 and unaligned rows go to the plain kernels") {
  const std::vector<std::int64_t> widths{4096};
  CHECK(panel_expand_tuning(shape_of(2048, 1, 1, 260), widths.data()).tile == kPanelPlain);
  PanelShape shape = shape_of(2048, 1, 1, 16);
  shape.vectors = false;
  CHECK(panel_shrink_tuning(shape).tile == kPanelPlain);
  CHECK(panel_shrink_tuning(shape).split == 1);
  CHECK(panel_expand_tuning(shape, widths.data()).tile == kPanelPlain);
}

TEST_CASE("panel: nothing to do is no launch") {
  const std::vector<std::int64_t> widths{0};
  CHECK(panel_shrink_tuning(shape_of(0, 0, 1, 16)).blocks == 0);
  CHECK(panel_expand_tuning(shape_of(5, 1, 1, 16), widths.data()).blocks == 0);
}

TEST_CASE("panel: a million rows stay within what a launch takes") {
  const std::int64_t many = std::int64_t{1} << 20;
  const std::vector<std::int64_t> widths(8, 16384);
  for (const std::int64_t active : {std::int64_t{1}, std::int64_t{512}, many}) {
    const PanelShape shape = shape_of(many, active, 8, 128);
    CHECK(panel_shrink_tuning(shape).blocks <= 2147483647);
    CHECK(panel_expand_tuning(shape, widths.data()).blocks <= 2147483647);
  }
}
