#include <doctest/doctest.h>

#include <cstdint>
#include <initializer_list>
#include <utility>

#include "kernels/plan/plan_tuning.h"
#include "ops/device_plan.h"

using namespace lora_bench::kernels;

namespace {

constexpr int kHopper = 90;
constexpr int kAmpere = 80;

std::int64_t tokens_covered(const PlanTuning& tuning, std::int64_t tokens) {
  return plan_rounds(tuning, tokens) * tuning.blocks * tuning.warps_per_block * 32;
}

}  // namespace

TEST_CASE("plan: one block of up to 512 rows, then a block for every 256, at most sixteen") {
  const auto shape = [](std::int64_t tokens, int capability) {
    const PlanTuning tuning = plan_tuning(tokens, 64, capability);
    return std::pair{tuning.blocks, tuning.warps_per_block};
  };
  CHECK(shape(0, kHopper) == std::pair{1, 8});
  CHECK(shape(256, kHopper) == std::pair{1, 8});
  CHECK(shape(512, kHopper) == std::pair{1, 16});
  CHECK(shape(513, kHopper) == std::pair{4, 8});
  CHECK(shape(2048, kHopper) == std::pair{8, 8});
  CHECK(shape(4096, kHopper) == std::pair{16, 8});
  CHECK(shape(8192, kHopper) == std::pair{16, 16});
  CHECK(shape(65536, kHopper) == std::pair{16, 32});
  CHECK(shape(1 << 20, kHopper) == std::pair{16, 32});
  CHECK(shape(16384, kAmpere) == std::pair{1, 32});
}

TEST_CASE("plan: the rounds cover every token, none of them twice over") {
  for (const std::int64_t most : {std::int64_t{1}, std::int64_t{3000}, std::int64_t{16384}}) {
    for (const int capability : {kHopper, kAmpere}) {
      const PlanTuning tuning = plan_tuning(most, 64, capability);
      CHECK(plan_rounds(tuning, 0) == 0);
      for (const std::int64_t tokens : {std::int64_t{1}, most / 2, most}) {
        const std::int64_t round = tokens_covered(tuning, 1);
        CHECK(tokens_covered(tuning, tokens) >= tokens);
        CHECK(tokens_covered(tuning, tokens) - round < tokens);
      }
    }
  }
  CHECK(plan_rounds(plan_tuning(65536, 64, kHopper), 65536) == kPlanRoundsInFlight);
}

TEST_CASE("plan: warps give way to slots until shared memory has no room") {
  CHECK(plan_tuning(16384, 400, kHopper).warps_per_block == kPlanMostWarps);
  int warps = kPlanMostWarps;
  for (std::int64_t slots = 1; slots <= 4031; ++slots) {
    const PlanTuning tuning = plan_tuning(16384, slots, kHopper);
    REQUIRE(tuning.blocks > 0);
    CHECK(tuning.warps_per_block <= warps);
    CHECK(tuning.shared_bytes == (tuning.warps_per_block + 3) * (slots + 1) * 4);
    CHECK(tuning.shared_bytes <= kPlanSharedBytes);
    warps = tuning.warps_per_block;
  }
  CHECK(warps == 1);
  CHECK(plan_tuning(16384, 4032, kHopper).blocks == 0);
  CHECK(plan_tuning(16384, 2687, kHopper, true).shared_bytes == (1 + 5) * 2688 * 4);
  CHECK(plan_tuning(16384, 2688, kHopper, true).blocks == 0);
}

TEST_CASE("plan: the ballots tell every adapter, none, and past the end apart") {
  for (const std::int64_t slots : {0, 1, 2, 6, 7, 64, 510, 511, 512, 4031}) {
    const std::int64_t past_the_end = slots + 1;
    CHECK((past_the_end >> plan_bits(slots)) == 0);
    CHECK((past_the_end >> (plan_bits(slots) - 1)) == 1);
  }
}

TEST_CASE("a device plan refuses what it cannot index or count") {
  using lora_bench::device_plan_takes;
  CHECK(device_plan_takes({1 << 20, 512, kHopper}).yes);
  CHECK(device_plan_takes({16384, 5000, kHopper}).why_not ==
        "5000 slots: shared memory has no room for a counter of each");
  CHECK(device_plan_takes({std::int64_t{1} << 31, 1, kHopper}).why_not ==
        "2147483648 tokens: indices of a plan are 32-bit");
}

TEST_CASE("a launch of lists has a cluster for each id, and a counter of each expert") {
  const AlignTuning tuning = align_tuning(1000, 64, 128, 8, kHopper);
  CHECK(tuning.slots.shared_bytes == 3 * 4);  // 65 bits
  CHECK(tuning.pairs.clusters == 65);
  CHECK(tuning.pairs.blocks == kPlanMostBlocks);
  CHECK(align_tuning(20, 64, 128, 8, kHopper).pairs.clusters == 20);
  CHECK(align_tuning(20, 64, 4180, 8, kHopper).pairs.shared_bytes == (1 + 5) * 4181 * 4);
  CHECK(align_tuning(20, 64, 4181, 8, kHopper).pairs.blocks == 0);
  CHECK(align_tuning(20, 64, 2687, 8, 75).pairs.blocks == 1);
  CHECK(align_tuning(20, 64, 2688, 8, 75).pairs.blocks == 0);
  CHECK(align_tuning(65535, 65535, 1, 1, kHopper).pairs.blocks > 0);
  CHECK(align_tuning(65536, 65535, 1, 1, kHopper).pairs.blocks == 0);
}
