#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "kernels/row_tiles.h"

using lora_bench::kernels::RowTiles;

TEST_CASE("row tiles: each group has whole ones and what is left") {
  const std::vector<std::int32_t> starts{0, 1, 9, 73, 73, 201};  // 1, 8, 64, 0 and 128 rows
  const RowTiles tiles(starts);
  CHECK(tiles.known());
  CHECK(tiles.of(8) == 1 + 1 + 8 + 0 + 16);
  CHECK(tiles.of(16) == 1 + 1 + 4 + 0 + 8);
  CHECK(tiles.of(32) == 1 + 1 + 2 + 0 + 4);
  CHECK(tiles.of(64) == 1 + 1 + 1 + 0 + 2);
  CHECK(tiles.of(128) == 1 + 1 + 1 + 0 + 1);
}

TEST_CASE("row tiles: no groups make none, and who says nothing knows nothing") {
  CHECK(RowTiles(std::vector<std::int32_t>{0}).of(64) == 0);
  CHECK(RowTiles(std::vector<std::int32_t>{0}).known());
  CHECK(RowTiles(std::vector<std::int32_t>{}).known());
  CHECK_FALSE(RowTiles().known());
}
