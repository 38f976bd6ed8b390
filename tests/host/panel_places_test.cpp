#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "support/panel_shapes.h"

using namespace lora_bench::kernels;
using namespace lora_bench::test;

// 32 x 32 tiles in eighths, two blocks a multiprocessor: 35 row tiles that may be there are 280
// blocks, 16 more than find a place, less than a sixteenth. On a multiprocessor less, or where 272
// blocks are a sixteenth more than the 256 places of 128, they are a round.
TEST_CASE("panel: a few blocks too many, of tiles that may not be there, are no round") {
  const auto rows_of = [](std::int64_t tokens, std::int64_t active, std::int64_t multiprocessors) {
    PanelShape shape = shape_of(tokens, active, 1, 8);
    shape.multiprocessors = multiprocessors;
    return kPanelShrinkTiles[static_cast<std::size_t>(panel_shrink_tuning(shape).tile)].rows;
  };
  CHECK(panel_shrink_tuning(shape_of(1024, 4, 1, 8)).blocks == 280);
  CHECK(rows_of(1024, 4, 132) == 32);
  CHECK(rows_of(1024, 4, 131) == 64);
  CHECK(rows_of(1056, 1, 128) == 32);
  CHECK(rows_of(1057, 1, 128) == 64);
}

// Where all groups are as long, 256 rows of four adapters are four row tiles of 64, or seven else.
TEST_CASE("panel: groups that may fill their tiles are reckoned with as half of the batches") {
  const auto tile_of = [](std::int64_t tokens, std::int64_t active, std::int64_t rank) {
    const int tile = panel_shrink_tuning(shape_of(tokens, active, 1, rank)).tile;
    return kPanelShrinkTiles[static_cast<std::size_t>(tile)];
  };
  CHECK(tile_of(256, 4, 8).joined);
  CHECK_FALSE(tile_of(257, 4, 8).joined);
  // 384 rows may fill tiles of 32, and not of 64: as often as not is too seldom.
  CHECK(tile_of(384, 4, 48).joined);
  CHECK(tile_of(384, 4, 48).rows == 64);
  // A tile of 32 x 32 is enough for 32 rows of one adapter, whichever way its time is taken.
  CHECK(tile_of(32, 1, 8).joined);
  CHECK(tile_of(32, 1, 8).rows == 32);
}

// 255 rows and one, eight times over: 40 row tiles of 64, in quarters, and not the 32 of groups of
// one length.
TEST_CASE("panel: groups that are known not to fill their tiles are not reckoned with as if") {
  PanelShape shape = shape_of(2048, 16, 1, 8);
  std::vector<std::int64_t> rows;
  for (int pair = 0; pair < 8; ++pair) {
    rows.insert(rows.end(), {255, 1});
  }
  shape.row_tiles = tiles_of(rows);
  CHECK(panel_shrink_tuning(shape).split == 4);
  CHECK(panel_shrink_tuning(shape).blocks == 160);
}

// As many as there are row tiles of 64 in the worst case, or where each group has one, times chunks
// of 32 column tiles of 128 (of 64 of 64), in 528, 264 or 132 places.
TEST_CASE("panel: chunks make one round of blocks for the row tiles that are reckoned with") {
  const std::vector<std::int64_t> widths{4096};
  const auto chunks_of = [&](const PanelShape& shape) {
    return panel_expand_tuning(shape, widths.data()).chunks;
  };
  CHECK(chunks_of(shape_of(32 * 32, 32, 1, 8)) == 16);   // a tile each: 32 * 16 = 512
  CHECK(chunks_of(shape_of(16 * 96, 16, 1, 8)) == 11);   // 39 tiles: 429, and 16 chunks 624
  CHECK(chunks_of(shape_of(32 * 96, 32, 1, 8)) == 6);    // 79 tiles: 474, and 8 chunks 632
  CHECK(chunks_of(shape_of(32 * 128, 32, 1, 8)) == 16);  // 64 or 95: two or three rounds
  CHECK(chunks_of(shape_of(8 * 32, 8, 1, 128)) == 32);   // a tile each: 256 of 264
  CHECK(chunks_of(shape_of(16 * 96, 16, 1, 128)) == 6);  // 39 tiles: 234 of 264
  CHECK(chunks_of(shape_of(4 * 32, 4, 1, 192)) == 16);   // 4 to 5: 80, and 32 chunks 160 of 132
  CHECK(chunks_of(shape_of(8 * 48, 8, 1, 192)) == 16);   // 8 to 13: 128 or 208 of 132
  CHECK(chunks_of(shape_of(16 * 200, 16, 1, 8)) == 8);
  PanelShape known = shape_of(32 * 48, 32, 1, 8);
  std::vector<std::int64_t> rows;
  for (int pair = 0; pair < 16; ++pair) {
    rows.insert(rows.end(), {95, 1});
  }
  known.row_tiles = tiles_of(rows);
  CHECK(chunks_of(known) == 11);  // 48 tiles: 528
}

// 319 row tiles at most in 396 places: with all 16 column tiles a block they are one round of 16,
// with three chunks of six three rounds.
TEST_CASE("panel: a block may have all column tiles of its rows") {
  const std::vector<std::int64_t> widths{1024};
  const PanelExpandTuning tuning = panel_expand_tuning(shape_of(16384, 64, 1, 48), widths.data());
  CHECK(tuning.column_tiles == 16);
  CHECK(tuning.chunks == 1);
}

// From 16 on a sixteenth more is tried: of 64 column tiles 62 a block are, which is two chunks.
TEST_CASE("panel: of many column tiles not every number is tried as those of a block") {
  const std::vector<std::int64_t> widths{4096};
  PanelShape shape = shape_of(8192, 8, 1, 192);
  shape.row_tiles = tiles_of(std::vector<std::int64_t>(8, 1024));
  const PanelExpandTuning tuning = panel_expand_tuning(shape, widths.data());
  CHECK(tuning.column_tiles == 64);
  CHECK(tuning.chunks == 2);
}

TEST_CASE("panel: more adapters than rows are as many as there are rows") {
  const std::vector<std::int64_t> widths{4096};
  for (const std::int64_t rank : {std::int64_t{8}, std::int64_t{64}, std::int64_t{192}}) {
    for (const std::int64_t tokens : {std::int64_t{1}, std::int64_t{32}, std::int64_t{40}}) {
      CAPTURE(rank);
      CAPTURE(tokens);
      const PanelShape as_many = shape_of(tokens, tokens, 1, rank);
      const PanelShape more = shape_of(tokens, 128, 1, rank);
      CHECK(panel_shrink_tuning(more) == panel_shrink_tuning(as_many));
      CHECK(panel_expand_tuning(more, widths.data()) ==
            panel_expand_tuning(as_many, widths.data()));
    }
  }
}

TEST_CASE("panel: each block costs its memory and a KB more, and one is held in any case") {
  const std::vector<std::int64_t> widths{4096, 1024, 1024};
  const std::int64_t bytes = panel_expand_bytes(kPanelExpandTiles[0]) + 1024;
  const auto chunks_in = [&](std::int64_t multiprocessor_bytes) {
    PanelShape shape = shape_of(4096, 16, 3, 16);
    shape.multiprocessor_bytes = multiprocessor_bytes;
    return panel_expand_tuning(shape, widths.data()).chunks;
  };
  const std::int64_t one = chunks_in(bytes), two = chunks_in(2 * bytes);
  CHECK(one != two);
  CHECK(chunks_in(2 * bytes - 1) == one);
  CHECK(chunks_in(3 * bytes - 1) == two);
  CHECK(chunks_in(0) == one);
}

TEST_CASE("panel: a tile of shrink that just fits into shared memory is taken") {
  for (std::size_t i = 0; i < kPanelShrinkTiles.size(); ++i) {
    const PanelShrinkTile& tile = kPanelShrinkTiles[i];
    const int levels = tile.joined ? kChainLevels : tile.grouped ? kPanelGroupedLevels : 2;
    const PanelShrinkSaid said{.tile = static_cast<int>(i), .levels = levels};
    PanelShape shape = shape_of(256, 1, 1, 64);
    shape.groups = true;
    shape.shared_bytes = panel_shrink_bytes(tile, levels);
    CAPTURE(i);
    CHECK(panel_shrink_tuning(shape, said).tile == said.tile);
    --shape.shared_bytes;
    CHECK(panel_shrink_tuning(shape, said).tile == kPanelPlain);
  }
}
