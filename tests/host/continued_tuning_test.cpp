#include <doctest/doctest.h>

#include "kernels/continued/continued_tuning.h"

using namespace lora_bench::kernels;

namespace {

ContinuedShape prefill(std::int64_t slots, std::int64_t slices, std::int64_t rank) {
  return {.tokens = 2048,
          .columns = 4096,
          .slots = slots,
          .slices = slices,
          .max_rank = rank,
          .depth = 4096};
}

}  // namespace

TEST_CASE("a product goes on over each part of h of each slice of as many adapters as have room") {
  CHECK(continued_lanes(prefill(1, 1, 16)) == 32);
  CHECK(continued_lanes(prefill(4, 3, 8)) == 48);
  CHECK(continued_blocks(prefill(4, 3, 8)) == 4);
  CHECK(continued_blocks(prefill(32, 3, 8)) == 5);
  CHECK(continued_blocks(prefill(1000, 1, 8)) == 16);
  // Rows begin where lines do.
  CHECK(continued_room(prefill(1, 1, 16)) == 64);
  CHECK(continued_room(prefill(1, 3, 16)) == 128);
  CHECK(continued_room(prefill(32, 3, 8)) == 256);
}

TEST_CASE("an eighth of A lies in shared memory, its rows in other banks") {
  const ContinuedShared small = continued_shared(4096, 16);
  CHECK(small.columns_each == 512);
  CHECK(small.pitch % 128 == 64);
  CHECK(small.lanes == 16);
  CHECK(small.bytes == 16 * (1088 + 512));
  CHECK(continued_shared(1000, 16).columns_each == 128);  // whole groups; the last block has fewer
  for (const std::int64_t lanes : {16, 32, 48, 64, 96, 128}) {
    CHECK(continued_shared(4096, lanes).lanes == lanes);
    CHECK(continued_shared(4096, lanes - 8).lanes == lanes);
  }
  CHECK(continued_shared(4096, 72).lanes == 96);
  // What is left by tiles of 128 rows, and is few, is no tile.
  const std::vector<ContinuedGroup> groups{{0, 128}, {1, 129}, {2, 1}, {3, 0}, {4, 16}, {5, 145}};
  CHECK(continued_tiles(groups) == 4);
  CHECK(continued_few(groups) == 3);
  ContinuedShape deep = prefill(1, 1, 64);
  CHECK(continued_takes(deep));
  deep.depth = 28672;
  CHECK_FALSE(continued_takes(deep));
  deep.max_rank = 16;
  CHECK(continued_takes(deep));
  deep.depth = 4100;
  CHECK_FALSE(continued_takes(deep));
}

TEST_CASE("many rows of few lanes go on, in whole vectors") {
  CHECK(continued_takes(prefill(1, 1, 16)));
  CHECK(continued_takes(prefill(8, 1, 128)));
  CHECK_FALSE(continued_takes(prefill(8, 1, 136)));
  CHECK_FALSE(continued_takes(prefill(1, 1, 12)));
  CHECK_FALSE(continued_takes(prefill(0, 1, 16)));
  CHECK_FALSE(continued_takes(prefill(1, 0, 16)));
  CHECK_FALSE(continued_takes(prefill(1, 9, 8)));
  CHECK_FALSE(continued_takes(prefill(1, 1, 0)));
  ContinuedShape shape = prefill(1, 1, 16);
  shape.tokens = 257;
  CHECK(continued_takes(shape));
  shape.tokens = 256;
  CHECK_FALSE(continued_takes(shape));
  shape = prefill(1, 1, 16);
  shape.columns += 4;
  CHECK_FALSE(continued_takes(shape));
}

TEST_CASE("of more adapters than have room, those of the most rows go on") {
  // All of them, whatever a batch has of each.
  CHECK(continued_slots(prefill(3, 1, 16), {{1, 2048}}) == std::vector<std::int32_t>{0, 1, 2});
  const std::vector<ContinuedGroup> groups{{3, 1}, {4, 900}, {7, 1100}, {9, 47}};
  CHECK(continued_slots(prefill(32, 1, 16), groups) == std::vector<std::int32_t>{7, 4});
  // Above a share of the rows that grows with what an adapter takes: 0.59 here, and 0.44.
  CHECK(continued_slots(prefill(32, 3, 32), groups).empty());
  CHECK(continued_slots(prefill(32, 3, 24), groups) == std::vector<std::int32_t>{7});
  // Of equal ones the first, as many as have room.
  CHECK(continued_slots(prefill(32, 1, 64), {{5, 1024}, {2, 1024}}) ==
        std::vector<std::int32_t>{5, 2});
}

TEST_CASE("what goes on is what a pass over y takes longer for") {
  const std::vector<ContinuedGroup> one{{0, 2048}};
  CHECK(continued_is_quicker(prefill(1, 3, 16), one));
  CHECK(continued_is_quicker(prefill(32, 1, 16), {{1, 3}, {3, 1000}, {7, 1045}}));
  CHECK_FALSE(continued_is_quicker(prefill(32, 1, 16), {{1, 100}, {3, 100}, {7, 100}}));
  CHECK_FALSE(continued_is_quicker(prefill(4, 1, 64), {{0, 512}, {1, 512}, {2, 512}, {3, 512}}));
  ContinuedShape few = prefill(1, 1, 16);
  few.columns = 256;  // y is small: the launch more is not made good
  CHECK_FALSE(continued_is_quicker(few, one));
  few = prefill(1, 1, 16);
  few.tokens = 64;
  CHECK_FALSE(continued_is_quicker(few, one));
  ContinuedShape deep = prefill(1, 1, 16);
  deep.depth = 14336;
  CHECK(continued_is_quicker(deep, one));
  deep.depth = 28672;  // x of 117 MB
  CHECK_FALSE(continued_is_quicker(deep, one));
  // Three eighths of a pass are saved, and a quarter.
  CHECK(continued_is_quicker(prefill(32, 3, 16), {{1, 8}, {3, 1000}, {7, 1040}}));
  CHECK_FALSE(continued_is_quicker(prefill(32, 1, 32), {{0, 512}, {1, 512}, {2, 512}, {3, 512}}));
}
