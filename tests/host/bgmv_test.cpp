#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "core/random.h"
#include "kernels/bgmv/bgmv_tuning.h"
#include "ops/backends.h"
#include "support/workload_case.h"

using namespace lora_bench::kernels;
using lora_bench::Problem;

namespace {

std::int64_t drawn(std::uint64_t index, std::uint64_t bound) {
  return static_cast<std::int64_t>(lora_bench::random_below(11, 1, index, bound));
}

// Rows of each adapter, and what the tuning is told of them.
struct Groups {
  std::vector<std::int64_t> rows;
  BgmvShape shape;
};

Groups groups(std::uint64_t index) {
  Groups drawn_groups;
  BgmvShape& shape = drawn_groups.shape;
  shape.active = 1 + drawn(5 * index, 20);
  for (std::int64_t group = 0; group < shape.active; ++group) {
    drawn_groups.rows.push_back(1 +
                                drawn(1000 + 20 * index + static_cast<std::uint64_t>(group), 200));
    shape.rows += drawn_groups.rows.back();
  }
  shape.tokens = shape.rows + drawn(5 * index + 1, 50);
  shape.slices = 1 + drawn(5 * index + 2, 8);
  shape.max_rank = 1 + drawn(5 * index + 3, 512);
  return drawn_groups;
}

std::int64_t tiles_needed(const Groups& batch, std::int64_t rows_per_tile) {
  std::int64_t tiles = 0;
  for (const std::int64_t rows : batch.rows) {
    tiles += (rows + rows_per_tile - 1) / rows_per_tile;
  }
  return tiles;
}

}  // namespace

TEST_CASE("bgmv: sixteen rows an adapter make segments, fewer are taken row by row") {
  CHECK(bgmv_form(0, 0) == BgmvForm::kRows);
  CHECK(bgmv_form(1, 1) == BgmvForm::kRows);
  CHECK(bgmv_form(15, 1) == BgmvForm::kRows);
  CHECK(bgmv_form(16, 1) == BgmvForm::kSegments);
  CHECK(bgmv_form(64, 64) == BgmvForm::kRows);
  CHECK(bgmv_form(4096, 4) == BgmvForm::kSegments);
  CHECK(bgmv_form(4096, 257) == BgmvForm::kRows);
}

TEST_CASE("bgmv: grids of segments hold every tile of every group") {
  for (std::uint64_t i = 0; i < 200; ++i) {
    const Groups batch = groups(i);
    const BgmvShrinkTuning shrink = bgmv_shrink_tuning(batch.shape);
    const std::vector<std::int64_t> widths(static_cast<std::size_t>(batch.shape.slices),
                                           drawn(5 * i + 4, 3000));
    const BgmvExpandTuning expand = bgmv_expand_tuning(batch.shape, widths.data());
    CAPTURE(i);
    if (shrink.form == BgmvForm::kRows) {
      continue;
    }
    CHECK(shrink.lane_tiles * shrink.lane_fragments * 8 >=
          batch.shape.slices * batch.shape.max_rank);
    CHECK((shrink.lane_tiles - 1) * shrink.lane_fragments * 8 <
          batch.shape.slices * batch.shape.max_rank);
    CHECK(shrink.blocks >= tiles_needed(batch, 16 * shrink.row_fragments) * shrink.lane_tiles);
    CHECK(expand.blocks >= tiles_needed(batch, kSgmvExpandRows) * expand.column_tiles);
    CHECK(expand.column_tiles * expand.columns_per_tile >= batch.shape.slices * widths[0]);
  }
}

TEST_CASE("bgmv: rows have a block for every group of lanes and every tile of columns") {
  BgmvShape shape{.tokens = 3, .rows = 3, .active = 3, .slices = 2, .max_rank = 9};
  CHECK(bgmv_shrink_tuning(shape).blocks == 3 * 2 * 9);
  CHECK(bgmv_shrink_tuning(shape).lanes_per_block == 1);
  shape.tokens = shape.rows = shape.active = 1000;
  CHECK(bgmv_shrink_tuning(shape).blocks == 1000 * 2 * 3);
  CHECK(bgmv_shrink_tuning(shape).lanes_per_block == 4);
  const std::vector<std::int64_t> widths{257, 0};
  CHECK(bgmv_expand_tuning(shape, widths.data()).column_tiles == 2);
  CHECK(bgmv_expand_tuning(shape, widths.data()).blocks == 2000);
  shape.tokens = shape.rows = shape.active = 1;
  const BgmvExpandTuning alone = bgmv_expand_tuning(shape, widths.data());
  CHECK(alone.columns_per_tile == 32);
  CHECK(alone.blocks == 9);
}

TEST_CASE("bgmv: nothing to do is no launch") {
  const std::vector<std::int64_t> none{0, 0};
  const std::vector<std::int64_t> some{64, 64};
  for (const std::int64_t active : {1, 8}) {
    const BgmvShape empty{.tokens = 0, .rows = 0, .active = 0, .slices = 2, .max_rank = 8};
    CHECK(bgmv_shrink_tuning(empty).blocks == 0);
    CHECK(bgmv_expand_tuning(empty, some.data()).blocks == 0);
    const BgmvShape busy{.tokens = 64, .rows = 64, .active = active, .slices = 2, .max_rank = 8};
    CHECK(bgmv_expand_tuning(busy, none.data()).blocks == 0);
  }
}

TEST_CASE("bgmv: a million rows stay within what a launch takes") {
  const std::int64_t many = std::int64_t{1} << 20;
  const std::vector<std::int64_t> widths(8, 16384);
  for (const std::int64_t active : {std::int64_t{1}, std::int64_t{512}, many}) {
    const BgmvShape shape{
        .tokens = many, .rows = many, .active = active, .slices = 8, .max_rank = 512};
    CHECK(bgmv_shrink_tuning(shape).blocks <= 2147483647);
    CHECK(bgmv_expand_tuning(shape, widths.data()).blocks <= 2147483647);
    CHECK(bgmv_shrink_tuning(shape).blocks >= 65536);
  }
}

TEST_CASE("bgmv: the declared depths are those of the sums") {
  CHECK(bgmv_shrink_depth(BgmvForm::kRows, 1) == 8 + 8);
  CHECK(bgmv_shrink_depth(BgmvForm::kRows, 4096) == 32 + 8);
  CHECK(bgmv_shrink_depth(BgmvForm::kSegments, 4096) == 512 + 3);
  CHECK(bgmv_shrink_depth(BgmvForm::kSegments, 4097) == 544 + 3);
  CHECK(bgmv_expand_depth(BgmvForm::kRows, 16, true) == 8 + 5 + 2);
  CHECK(bgmv_expand_depth(BgmvForm::kRows, 512, true) == 16 + 5 + 2);
  CHECK(bgmv_expand_depth(BgmvForm::kSegments, 16, false) == 16 + 2);
  CHECK(bgmv_expand_depth(BgmvForm::kSegments, 16, true) == 48 + 2);
}

TEST_CASE("bgmv declares what the form does that the batch makes it take") {
  const Problem runs = problem_of(workload_case(64, 1));
  CHECK(lora_bench::bgmv_numerics(runs).unit_roundoff == 0x1p-23);
  CHECK(lora_bench::bgmv_numerics(runs).deterministic);
  CHECK_FALSE(lora_bench::bgmv_numerics(runs).batch_invariant);
  CHECK_FALSE(lora_bench::bgmv_numerics(runs).replays_other_batches);
  const Problem decode = problem_of(workload_case(4, 8));
  CHECK(lora_bench::bgmv_numerics(decode).unit_roundoff == 0x1p-24);
  CHECK(lora_bench::bgmv_numerics(decode).shrink_depth == 8 + 8);
}
