#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/random.h"
#include "kernels/chunked/chunked_tuning.h"
#include "kernels/divide_up.h"
#include "kernels/grouped/grouped_tuning.h"
#include "kernels/tile/tile_tuning.h"
#include "ops/kernel_params.h"

using namespace lora_bench::kernels;

namespace {

std::int64_t drawn(std::uint64_t index, std::uint64_t bound) {
  return static_cast<std::int64_t>(lora_bench::random_below(11, 3, index, bound));
}

// Starts of groups of at least one row each.
std::vector<std::int32_t> drawn_starts(std::uint64_t seed, std::int64_t active,
                                       std::uint64_t most_rows) {
  std::vector<std::int32_t> starts{0};
  for (std::int64_t group = 0; group < active; ++group) {
    const auto rows = 1 + drawn(seed * 1000 + static_cast<std::uint64_t>(group), most_rows);
    starts.push_back(starts.back() + static_cast<std::int32_t>(rows));
  }
  return starts;
}

GroupedShape shape_of(const std::vector<std::int32_t>& starts) {
  GroupedShape shape;
  shape.group_starts = starts;
  shape.active = static_cast<std::int64_t>(starts.size()) - 1;
  shape.slices = 3;
  shape.in_features = 4096;
  shape.widest_slice = 4096;
  shape.max_rank = 16;
  shape.multiprocessors = 132;
  return shape;
}

// The group of a segment as a block finds it: the last that begins at or before it.
std::int64_t group_of(const std::vector<std::int32_t>& starts, std::int64_t segment,
                      std::int64_t chunk) {
  std::int64_t group = -1;
  while (group + 2 < static_cast<std::int64_t>(starts.size()) &&
         first_segment(group + 1, starts[static_cast<std::size_t>(group + 1)], chunk) <= segment) {
    ++group;
  }
  return group;
}

}  // namespace

TEST_CASE("chunked: the segments hold every row of every group once, and nothing else") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const std::int64_t active = 1 + drawn(seed, 40);
    const std::vector<std::int32_t> starts = drawn_starts(seed, active, 90);
    for (const std::int64_t chunk : {16, 64}) {
      std::vector<int> seen(static_cast<std::size_t>(starts.back()), 0);
      const std::int64_t segments = first_segment(active, starts.back(), chunk);
      for (std::int64_t segment = 0; segment < segments; ++segment) {
        const auto group = static_cast<std::size_t>(group_of(starts, segment, chunk));
        const std::int64_t tile =
            segment - first_segment(static_cast<std::int64_t>(group), starts[group], chunk);
        REQUIRE(tile >= 0);
        for (std::int64_t row = starts[group] + tile * chunk;
             row < std::min<std::int64_t>(starts[group] + (tile + 1) * chunk, starts[group + 1]);
             ++row) {
          ++seen[static_cast<std::size_t>(row)];
        }
      }
      CHECK(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
    }
  }
}

TEST_CASE("chunked: segments follow the size of the batch, columns the slices together") {
  const std::vector<std::int64_t> widths{4096, 0, 1000, 1};
  ChunkedShape shape{.rows = 64, .active = 64, .slices = 4, .max_rank = 16, .widths = widths};
  CHECK(chunked_shrink_tuning(shape).chunk == 16);
  CHECK(chunked_shrink_tuning(shape).segments == 64 + 64 / 16);
  CHECK(chunked_shrink_tuning(shape).column_tiles == 4);              // 64 lanes in tiles of 16
  CHECK(chunked_expand_tuning(shape).column_tiles == 8 + 0 + 2 + 1);  // in tiles of 512
  shape.rows = 4096;
  CHECK(chunked_shrink_tuning(shape).chunk == 64);
  CHECK(chunked_shrink_tuning(shape).segments == 64 + 4096 / 64);
  CHECK(chunked_shrink_tuning(shape).column_tiles == 1);
  CHECK(chunked_expand_tuning(shape).column_tiles == 32 + 0 + 8 + 1);  // in tiles of 128
  shape.vectors = false;
  CHECK(chunked_shrink_tuning(shape).chunk == 16);
  CHECK(chunked_expand_tuning(shape).columns_per_tile == 128);
}

TEST_CASE("chunked: no rows or no columns is no launch") {
  const std::vector<std::int64_t> widths{0};
  const ChunkedShape empty{.slices = 1, .max_rank = 16, .widths = widths};
  CHECK(chunked_shrink_tuning(empty).segments == 0);
  CHECK(chunked_expand_tuning(empty).column_tiles == 0);
}

TEST_CASE("grouped: the grid reaches every row of the largest group and every lane and column") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::vector<std::int32_t> starts = drawn_starts(seed, 1 + drawn(seed, 30), 200);
    GroupedShape shape = shape_of(starts);
    shape.max_rank = 1 + drawn(seed + 7000, 512);
    shape.widest_slice = 1 + drawn(seed + 8000, 9000);
    shape.vectors = seed % 3 != 0;
    std::int64_t largest = 0;
    for (std::size_t group = 1; group < starts.size(); ++group) {
      largest = std::max<std::int64_t>(largest, starts[group] - starts[group - 1]);
    }
    const GroupedTuning shrink = grouped_shrink_tuning(shape);
    CHECK(shrink.row_tiles == divide_up(largest, shrink.rows_per_tile));
    CHECK(shrink.column_tiles == divide_up(shape.max_rank, shrink.columns_per_tile));
    CHECK(shrink.split >= 1);
    CHECK(shape.in_features / shrink.split >= 512);
    const GroupedTuning expand = grouped_expand_tuning(shape);
    CHECK(expand.rows_per_tile == shrink.rows_per_tile);
    CHECK(expand.column_tiles == divide_up(shape.widest_slice, expand.columns_per_tile));
    CHECK((shape.vectors || expand.columns_per_tile == 128));
  }
}

TEST_CASE("grouped: K is split where few blocks have rows, and only there") {
  const std::vector<std::int32_t> one{0, 1};
  CHECK(grouped_shrink_tuning(shape_of(one)).split == 8);  // 512 numbers of K a part
  std::vector<std::int32_t> many{0};
  for (std::int32_t group = 1; group <= 200; ++group) {
    many.push_back(group);
  }
  CHECK(grouped_shrink_tuning(shape_of(many)).split == 1);
  // One large adapter among small ones: what counts is tiles with rows, not the size of the grid.
  std::vector<std::int32_t> uneven{0, 1280};
  for (std::int32_t group = 1; group <= 15; ++group) {
    uneven.push_back(1280 + group);
  }
  GroupedShape shape = shape_of(uneven);
  shape.slices = 1;
  shape.in_features = 14336;
  CHECK(grouped_shrink_tuning(shape).rows_per_tile == 64);
  CHECK(grouped_shrink_tuning(shape).split == divide_up(3 * 132, 20 + 15));
}

TEST_CASE("grouped: no active adapter, no rank or no columns is no launch") {
  const std::vector<std::int32_t> none{0};
  CHECK(grouped_shrink_tuning(shape_of(none)).row_tiles == 0);
  CHECK(grouped_expand_tuning(shape_of(none)).row_tiles == 0);
  const std::vector<std::int32_t> one{0, 1};
  GroupedShape shape = shape_of(one);
  shape.max_rank = 0;
  CHECK(grouped_shrink_tuning(shape).column_tiles == 0);
  shape.widest_slice = 0;
  CHECK(grouped_expand_tuning(shape).column_tiles == 0);
}

TEST_CASE("grouped: room for more groups than the batch has changes no tile") {
  const std::vector<std::int32_t> starts{0, 40, 41, 100};
  GroupedShape own = shape_of(starts);
  own.vectors = false;
  GroupedShape roomy = own;
  roomy.active = 99;
  CHECK(own.active == 3);
  CHECK(grouped_shrink_tuning(roomy).row_tiles == 4);
  CHECK(grouped_shrink_tuning(roomy) == grouped_shrink_tuning(own));
  CHECK(grouped_expand_tuning(roomy) == grouped_expand_tuning(own));
}

TEST_CASE("declared depths grow with K and the rank, and shrink with the split") {
  CHECK(tile_shrink_depth(8192, 1) > tile_shrink_depth(4096, 1));
  CHECK(tile_shrink_depth(65536, 8) < tile_shrink_depth(65536, 1));
  CHECK(tile_shrink_depth(4096, 1) < 4096);
  CHECK(tile_expand_depth(64, true) > tile_expand_depth(64, false));
  CHECK(tile_expand_depth(512, false) > tile_expand_depth(16, false));
}

TEST_CASE("vectors are read only where every row begins at a multiple of 16 bytes") {
  ShrinkParams shrink;
  alignas(16) static char memory[64] = {};
  shrink.x = memory;
  shrink.a[0] = memory + 16;
  shrink.slices = 1;
  shrink.in_features = 4096;
  shrink.x_stride = 4104;
  CHECK(lora_bench::reads_vectors(shrink, 2));
  shrink.x_stride = 4100;
  CHECK_FALSE(lora_bench::reads_vectors(shrink, 2));
  shrink.x_stride = 4096;
  shrink.in_features = 4095;
  CHECK_FALSE(lora_bench::reads_vectors(shrink, 2));
  shrink.in_features = 4096;
  shrink.a[0] = memory + 2;
  CHECK_FALSE(lora_bench::reads_vectors(shrink, 2));
  shrink.slices = 0;
  shrink.x = memory + 8;
  CHECK_FALSE(lora_bench::reads_vectors(shrink, 2));

  ExpandParams expand;
  expand.h = memory;
  expand.b[0] = memory;
  expand.y = memory;
  expand.slices = 2;
  expand.max_rank = 8;
  expand.width[0] = 1024;
  expand.width[1] = 512;
  expand.y_stride = 1536;
  CHECK(lora_bench::reads_vectors(expand, 2, 4));
  CHECK(lora_bench::has_vector_y(expand, 2));
  expand.width[0] = 1028;
  CHECK_FALSE(lora_bench::has_vector_y(expand, 2));
  expand.width[0] = 1024;
  expand.first_column = 4;
  CHECK_FALSE(lora_bench::has_vector_y(expand, 2));
  expand.max_rank = 4;
  CHECK_FALSE(lora_bench::reads_vectors(expand, 2, 4));
  expand.max_rank = 8;
  expand.b[1] = memory + 1;
  CHECK_FALSE(lora_bench::reads_vectors(expand, 2, 4));
}

TEST_CASE("panels of expand need y and bias on 16 bytes, and columns of B on eight") {
  alignas(16) static char memory[64] = {};
  const auto taken_with = [&](const auto& change) {
    ExpandParams expand;
    expand.b[0] = expand.b[1] = memory;
    expand.y = memory;
    expand.slices = 2;
    expand.max_rank = 12;
    expand.width[0] = 1024;
    expand.width[1] = 512;
    expand.y_stride = 1536;
    change(expand);
    return lora_bench::expands_in_vectors(expand, 2);
  };
  CHECK(taken_with([](ExpandParams&) {}));
  CHECK(taken_with([](ExpandParams& expand) { expand.h = memory + 4; }));
  CHECK_FALSE(taken_with([](ExpandParams& expand) { expand.max_rank = 10; }));
  CHECK_FALSE(taken_with([](ExpandParams& expand) { expand.b[1] = memory + 8; }));
  CHECK_FALSE(taken_with([](ExpandParams& expand) { expand.bias[0] = memory + 8; }));
  CHECK_FALSE(taken_with([](ExpandParams& expand) { expand.y_stride = 1540; }));
}
