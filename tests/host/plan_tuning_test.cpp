#include <doctest/doctest.h>

#include <cstdint>
#include <initializer_list>

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

TEST_CASE("plan: a block for every 2048 tokens, at most eight, one without clusters") {
  CHECK(plan_tuning(0, 64, kHopper).blocks == 1);
  CHECK(plan_tuning(1024, 64, kHopper).blocks == 1);
  CHECK(plan_tuning(2048, 64, kHopper).blocks == 1);
  CHECK(plan_tuning(2049, 64, kHopper).blocks == 2);
  CHECK(plan_tuning(5000, 64, kHopper).blocks == 4);
  CHECK(plan_tuning(16384, 512, kHopper).blocks == 8);
  CHECK(plan_tuning(1 << 20, 512, kHopper).blocks == 8);
  CHECK(plan_tuning(16384, 512, kAmpere).blocks == 1);
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
  CHECK(plan_rounds(plan_tuning(16384, 512, kHopper), 16384) == kPlanRoundsInFlight);
}

TEST_CASE("plan: warps give way to slots until shared memory has no room") {
  CHECK(plan_tuning(1024, 512, kHopper).warps_per_block == kPlanMostWarps);
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
