#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/random.h"
#include "kernels/naive/naive_tuning.h"

using lora_bench::kernels::kMaxBlocks;
using lora_bench::kernels::kWarp;
using lora_bench::kernels::NaiveTuning;

namespace {

// How often the kernels' loops visit each item with this grid; a stride loop, one owner an item.
std::vector<int> visits(const NaiveTuning& tuning, std::int64_t items, int threads_per_item) {
  std::vector<int> count(static_cast<std::size_t>(items), 0);
  const std::int64_t owners = tuning.blocks * (tuning.threads_per_block / threads_per_item);
  for (std::int64_t owner = 0; owner < owners; ++owner) {
    for (std::int64_t item = owner; item < items; item += owners) {
      ++count[static_cast<std::size_t>(item)];
    }
  }
  return count;
}

bool all_once(const std::vector<int>& count) {
  return std::all_of(count.begin(), count.end(), [](int n) { return n == 1; });
}

std::int64_t drawn(std::uint64_t index, std::uint64_t bound) {
  return static_cast<std::int64_t>(lora_bench::random_below(7, 1, index, bound));
}

}  // namespace

TEST_CASE("naive: every element has exactly one owner, and no block is idle") {
  for (std::uint64_t i = 0; i < 200; ++i) {
    const std::int64_t tokens = drawn(4 * i, 20);
    const std::int64_t slices = drawn(4 * i + 1, 5);
    const std::int64_t rank = drawn(4 * i + 2, 70);
    const std::int64_t columns = drawn(4 * i + 3, 400);
    const NaiveTuning shrink = lora_bench::kernels::naive_shrink_tuning(tokens, slices, rank);
    CHECK(all_once(visits(shrink, tokens * slices * rank, kWarp)));
    CHECK((shrink.blocks - 1) * (shrink.threads_per_block / kWarp) <
          std::max<std::int64_t>(tokens * slices * rank, 1));
    const NaiveTuning expand = lora_bench::kernels::naive_expand_tuning(tokens, columns);
    CHECK(all_once(visits(expand, tokens * columns, 1)));
    CHECK((expand.blocks - 1) * expand.threads_per_block <
          std::max<std::int64_t>(tokens * columns, 1));
  }
}

TEST_CASE("naive: nothing to do is no launch") {
  CHECK(lora_bench::kernels::naive_shrink_tuning(0, 3, 64).blocks == 0);
  CHECK(lora_bench::kernels::naive_shrink_tuning(8, 3, 0).blocks == 0);
  CHECK(lora_bench::kernels::naive_expand_tuning(0, 4096).blocks == 0);
  CHECK(lora_bench::kernels::naive_expand_tuning(8, 0).blocks == 0);
}

TEST_CASE("naive: grids stay within what a launch takes, however large the problem") {
  for (const std::int64_t tokens : {std::int64_t{1} << 20, std::int64_t{1} << 31}) {
    for (const NaiveTuning& tuning :
         {lora_bench::kernels::naive_shrink_tuning(tokens, 8, 4096),
          lora_bench::kernels::naive_expand_tuning(tokens, std::int64_t{1} << 20)}) {
      CHECK(tuning.blocks >= 65536);
      CHECK(tuning.blocks <= kMaxBlocks);
      CHECK(tuning.threads_per_block % kWarp == 0);
      CHECK(tuning.threads_per_block <= 1024);
    }
  }
}

TEST_CASE("naive: the declared depth is that of 32 strided sums and a tree over them") {
  CHECK(lora_bench::kernels::naive_shrink_depth(1) == 6);
  CHECK(lora_bench::kernels::naive_shrink_depth(32) == 6);
  CHECK(lora_bench::kernels::naive_shrink_depth(33) == 7);
  CHECK(lora_bench::kernels::naive_shrink_depth(4096) == 133);
  CHECK(lora_bench::kernels::naive_expand_depth(16) == 18);
}
