#include <doctest/doctest.h>

#include <array>
#include <cstdint>

#include "kernels/streamed/streamed_tuning.h"

using namespace lora_bench::kernels;

namespace {

StreamedShape decode(std::int64_t tokens) { return {tokens, 6144, 4096, 4096, 2, 90}; }

}  // namespace

TEST_CASE("few rows of 16 bits are streamed on sm_90, in whole groups and units") {
  for (const std::int64_t tokens : {1, 7, 8}) {
    CHECK(streamed_takes(decode(tokens)));
  }
  CHECK_FALSE(streamed_takes(decode(0)));
  CHECK_FALSE(streamed_takes(decode(9)));
  StreamedShape shape = decode(1);
  shape.columns += 8;
  CHECK_FALSE(streamed_takes(shape));
  shape = decode(1);
  shape.depth += 16;
  CHECK_FALSE(streamed_takes(shape));
  shape = decode(1);
  shape.x_stride += 4;
  CHECK_FALSE(streamed_takes(shape));
  shape = decode(1);
  shape.element_bytes = 4;
  CHECK_FALSE(streamed_takes(shape));
  shape = decode(1);
  shape.compute_capability = 89;
  CHECK_FALSE(streamed_takes(shape));
}

TEST_CASE("rows that are many enough for x to count share what is read of it") {
  CHECK(streamed_units_together(2, 14, true) == 1);
  CHECK(streamed_units_together(3, 14, true) == 2);
  CHECK(streamed_units_together(8, 3, true) == 2);
  CHECK(streamed_units_together(8, 2, true) == 1);  // both would end last
  CHECK(streamed_units_together(8, 2, false) == 2);
}

TEST_CASE("a sum over K is as deep as the columns of one warp, and the warps") {
  const auto layer = [](std::int64_t depth) { return StreamedShape{1, 4096, depth, depth, 2, 90}; };
  CHECK(streamed_base_depth(layer(4096)) == 4096 / 8 + 8);
  CHECK(streamed_base_depth(layer(1056)) == 2 * 128 + 8);
  CHECK(streamed_hidden_depth(layer(4096)) == 4096 / 32 + 5);
  CHECK(streamed_hidden_depth(layer(1056)) == 64 + 5);
}

TEST_CASE("adapters are streamed with the base as long as h and their rows of B find room") {
  const std::array<std::int64_t, 3> widths{4096, 1024, 1024};
  const auto takes = [&](std::int64_t tokens, std::int64_t active, std::int64_t max_rank,
                         std::int64_t slices) {
    return streamed_takes_adapters(decode(tokens), {active, slices, max_rank, widths.data(), 0});
  };
  CHECK(takes(1, 1, 16, 1));
  CHECK(takes(8, 8, 8, 3));
  CHECK(takes(8, 8, 16, 3));
  CHECK(takes(1, 1, 128, 3));
  CHECK_FALSE(takes(1, 1, 256, 1));
  CHECK_FALSE(takes(8, 8, 32, 1));
  CHECK_FALSE(takes(8, 1, 128, 3));
  CHECK_FALSE(takes(1, 1, 12, 1));
  CHECK_FALSE(takes(1, 0, 16, 1));
  CHECK_FALSE(streamed_takes_adapters(decode(1), {1, 3, 16, widths.data(), 8}));
  const std::array<std::int64_t, 1> narrow{40};
  CHECK_FALSE(streamed_takes_adapters(decode(1), {1, 1, 16, narrow.data(), 0}));
  CHECK(streamed_words(decode(8), 3, 16) == 2 * kStreamedSplits * 3 * 8 * 16);
}
