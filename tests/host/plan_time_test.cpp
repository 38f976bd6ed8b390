#include "measure/measure.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "measure/fake_clock.h"
#include "support/near.h"

using namespace lora_bench;

namespace {

Problem problem_of_ids(std::int64_t tokens, std::int64_t slots) {
  Problem problem;
  problem.tokens = tokens;
  problem.slots = slots;
  const std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens), 0);
  problem.plan = make_plan(ids, slots);
  return problem;
}

}  // namespace

TEST_CASE("the time of a plan is the median of its runs, for one build, warm-up left out") {
  const auto memory = make_host_memory();
  FakeClock clock(
      [](int, std::int64_t run) { return run == 0 ? 1.0 : 1e-6 * static_cast<double>(run); });
  const auto seconds = plan_seconds(problem_of_ids(64, 8), *memory, clock, {});
  REQUIRE(seconds.has_value());
  CHECK(*seconds == near(5e-6));
  CHECK(clock.runs(0) == 10);
}

TEST_CASE("few builds of a large batch make a run, and an empty batch has a time too") {
  const auto memory = make_host_memory();
  for (const std::int64_t tokens : {0, 1 << 20}) {
    FakeClock clock([](int, std::int64_t) { return 1e-6; });
    CHECK(plan_seconds(problem_of_ids(tokens, 1), *memory, clock, {}).value() == near(1e-6));
    CHECK(clock.launches(0) == (tokens == 0 ? 64 : 4));
  }
}
