#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "core/random.h"
#include "kernels/paired/paired_tuning.h"
#include "ops/paired_backend.h"
#include "support/workload_case.h"

using namespace lora_bench::kernels;

namespace {

std::int64_t drawn(std::uint64_t index, std::uint64_t bound) {
  return static_cast<std::int64_t>(lora_bench::random_below(12, 1, index, bound));
}

// Rows of each adapter, and what the tuning is told of them.
struct Groups {
  std::vector<std::int64_t> rows;
  PairedShape shape;
};

Groups groups(std::uint64_t index) {
  Groups batch;
  PairedShape& shape = batch.shape;
  shape.active = 1 + drawn(9 * index, 20);
  const auto most_rows = static_cast<std::uint64_t>(1 + drawn(9 * index + 1, 200));
  for (std::int64_t group = 0; group < shape.active; ++group) {
    batch.rows.push_back(1 +
                         drawn(5000 + 20 * index + static_cast<std::uint64_t>(group), most_rows));
    shape.tokens += batch.rows.back();
  }
  shape.tokens += drawn(9 * index + 2, 50);
  shape.slices = 1 + drawn(9 * index + 3, 8);
  shape.max_rank = 1 + drawn(9 * index + 4, 128);
  shape.in_features = 1 + drawn(9 * index + 5, 20000);
  shape.multiprocessors = 1 + drawn(9 * index + 6, 160);
  shape.vectors = drawn(9 * index + 7, 4) > 0;
  return batch;
}

std::int64_t tiles_needed(const Groups& batch, std::int64_t rows_per_tile) {
  std::int64_t tiles = 0;
  for (const std::int64_t rows : batch.rows) {
    tiles += (rows + rows_per_tile - 1) / rows_per_tile;
  }
  return tiles;
}

}  // namespace

TEST_CASE("paired: groups of K cover it, and follow from K alone") {
  for (const std::int64_t k : {1, 511, 2048, 2049, 4096, 5000, 8192, 14336, 17000, 28672, 100000}) {
    CAPTURE(k);
    CHECK(paired_group_depth(k) % kPairedStride == 0);
    CHECK(paired_groups(k) * paired_group_depth(k) >= k);
    CHECK(paired_groups(k) <= 4);
  }
  CHECK(paired_groups(4096) == 2);
  CHECK(paired_group_depth(4096) == 2048);
  CHECK(paired_groups(14336) == 4);
  CHECK(paired_groups(28672) == 4);
}

TEST_CASE("paired: a block a row tile, lane tile and part of K; a block a row and column tile") {
  for (std::uint64_t i = 0; i < 500; ++i) {
    const Groups batch = groups(i);
    const std::int64_t lanes = batch.shape.slices * batch.shape.max_rank;
    const PairedShrinkTuning shrink = paired_shrink_tuning(batch.shape);
    const std::vector<std::int64_t> widths(static_cast<std::size_t>(batch.shape.slices),
                                           drawn(9 * i + 8, 3000));
    const PairedExpandTuning expand = paired_expand_tuning(batch.shape, widths.data(), 4);
    CAPTURE(i);
    CHECK(shrink.lane_tiles * shrink.lane_fragments * 8 >= lanes);
    CHECK((shrink.lane_tiles - 1) * shrink.lane_fragments * 8 < lanes);
    const bool one_or_all =
        shrink.parts == 1 || shrink.parts == paired_groups(batch.shape.in_features);
    CHECK(one_or_all);
    CHECK(shrink.blocks >=
          tiles_needed(batch, 16 * shrink.row_fragments) * shrink.lane_tiles * shrink.parts);
    const std::int64_t columns = expand.columns_per_tile;
    CHECK(columns % (expand.row_fragments == 1 ? 256 : 128) == 0);
    CHECK(expand.shared_bytes <= 227 << 10);
    const std::int64_t rows = expand.row_fragments == 1 ? 16 : 64;
    CHECK(expand.column_tiles == batch.shape.slices * ((widths[0] + columns - 1) / columns));
    CHECK(expand.blocks >= tiles_needed(batch, rows) * expand.column_tiles);
  }
}

TEST_CASE("paired: one token spreads over the machine, many rows share a large tile") {
  PairedShape shape{.tokens = 1,
                    .active = 1,
                    .slices = 3,
                    .max_rank = 16,
                    .in_features = 4096,
                    .multiprocessors = 132};
  const std::vector<std::int64_t> widths{4096, 1024, 1024};
  CHECK(paired_shrink_tuning(shape).lane_fragments == 1);
  CHECK(paired_shrink_tuning(shape).blocks == 6 * 2);
  CHECK(paired_expand_tuning(shape, widths.data(), 4).columns_per_tile == 256);
  CHECK(paired_expand_tuning(shape, widths.data(), 4).blocks == 24);
  shape.tokens = 16384;
  CHECK(paired_shrink_tuning(shape).row_fragments == 4);
  CHECK(paired_shrink_tuning(shape).lane_fragments == 6);
  CHECK(paired_expand_tuning(shape, widths.data(), 4).row_fragments == 2);
  CHECK(paired_expand_tuning(shape, widths.data(), 4).columns_per_tile > 1024);
}

TEST_CASE("paired: no block asks for more shared memory than a device gives") {
  for (std::uint64_t i = 0; i < 300; ++i) {
    Groups batch = groups(i);
    batch.shape.shared_bytes = 99 << 10;
    const PairedShrinkTuning shrink = paired_shrink_tuning(batch.shape);
    const std::vector<std::int64_t> widths(static_cast<std::size_t>(batch.shape.slices), 1000);
    CAPTURE(i);
    CHECK(shrink.blocks > 0);
    CHECK(shrink.stages * (2 * shrink.row_fragments + shrink.lane_fragments) * 4096 <= 99 << 10);
    CHECK(paired_expand_tuning(batch.shape, widths.data(), 4).shared_bytes <= 99 << 10);
  }
}

TEST_CASE("paired: a million rows stay within what a launch takes") {
  const std::int64_t many = std::int64_t{1} << 20;
  const std::vector<std::int64_t> widths(8, 16384);
  for (const std::int64_t active : {std::int64_t{1}, std::int64_t{512}, many}) {
    const PairedShape shape{.tokens = many,
                            .active = active,
                            .slices = 8,
                            .max_rank = 512,
                            .in_features = 16384,
                            .multiprocessors = 132};
    CHECK(paired_shrink_tuning(shape).blocks <= 2147483647);
    CHECK(paired_expand_tuning(shape, widths.data(), 4).blocks <= 2147483647);
  }
}

TEST_CASE("paired: the declared depths are those of the sums") {
  CHECK(paired_shrink_depth(512) == 64 + 8 + 1);
  CHECK(paired_shrink_depth(4096) == 4 * 64 + 8 + 2);
  CHECK(paired_shrink_depth(14336) == 7 * 64 + 8 + 4);
  CHECK(paired_expand_depth(16, true) == 48 + 2);
  CHECK(paired_expand_depth(16, false) == 16 + 2);
}

TEST_CASE("paired declares that neither the batch nor the run changes a bit") {
  const lora_bench::Numerics numerics =
      lora_bench::paired_numerics(problem_of(workload_case(64, 1)));
  CHECK(numerics.deterministic);
  CHECK(numerics.batch_invariant);
  CHECK(numerics.graph_safe);
}
