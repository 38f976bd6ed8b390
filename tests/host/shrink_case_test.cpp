#include <doctest/doctest.h>

#include <algorithm>

#include "scenario/scenario.h"
#include "support/draws.h"
#include "verify/random_case.h"

using namespace lora_bench;

namespace {

bool never() { return false; }

// The plainest case there is, but for what the fault needs.
void check_plain_but_for(const Case& spec, std::int64_t sequences) {
  CHECK(spec.batch.prefill.empty());
  CHECK(spec.batch.decode == sequences);
  CHECK(spec.adapters.slots == 1);
  CHECK_FALSE(spec.adapters.bias);
  CHECK(spec.adapters.scale == std::vector<double>{1});
  CHECK(spec.skew.kind == Skew::kIdentical);
  CHECK(spec.prefill_skew.kind == Skew::kIdentical);
  CHECK(spec.no_adapter == 0);
  CHECK(spec.order == Order::kAsArrived);
  CHECK(spec.layer.offset_start == 0);
  CHECK(spec.seed == 1);
}

}  // namespace

TEST_CASE("a case shrinks to the sizes that its fault needs and no more") {
  int shrunk = 0;
  for (std::uint64_t index = 0; index < 300; ++index) {
    const auto fails = [](const Case& spec) {
      return spec.layer.in_features > 33 && spec.layer.widths.size() > 1 &&
             spec.layer.y_stride > spec.layer.offset_start + spec.layer.widths[0] + 7;
    };
    const Case drawn = random_case(2, index);
    if (!fails(drawn)) {
      continue;
    }
    ++shrunk;
    const Shrunk found = shrink_case(drawn, fails, never);
    CAPTURE(scenario_text(found.spec));
    CHECK(fails(found.spec));
    CHECK(found.spec.layer.in_features == 34);
    CHECK(found.spec.layer.widths.size() == 2);
    CHECK(found.spec.layer.y_stride == found.spec.layer.widths[0] + 8);
    CHECK(found.spec.adapters.max_rank == 1);
    CHECK(found.steps <= found.tries);
    CHECK(found.tries < 500);
    check_plain_but_for(found.spec, 0);
  }
  CHECK(shrunk > 40);
}

TEST_CASE("what the fault needs of batch and adapters stays") {
  const auto fails = [](const Case& spec) {
    const auto sequences = spec.batch.decode + static_cast<std::int64_t>(spec.batch.prefill.size());
    return sequences >= 5 && !spec.adapters.rank.list.empty() &&
           *std::max_element(spec.adapters.rank.list.begin(), spec.adapters.rank.list.end()) >= 17;
  };
  for (std::uint64_t index = 0; index < 60; ++index) {
    const Case drawn = random_case(3, index);
    if (fails(drawn)) {
      const Shrunk found = shrink_case(drawn, fails, never);
      CAPTURE(scenario_text(found.spec));
      CHECK(found.spec.adapters.rank.list == std::vector<std::int64_t>{17});
      CHECK(found.spec.adapters.max_rank == 17);
      CHECK(found.spec.layer.in_features == 1);
      check_plain_but_for(found.spec, 5);
    }
  }
}

TEST_CASE("every case that is tried is one that a scenario may hold, and none is tried twice") {
  for (std::int64_t index = 0; index < test::draws(100); ++index) {
    std::vector<std::uint64_t> seen;
    std::uint64_t turn = 0;
    const auto fails = [&](const Case& spec) {
      const Case read = parse_scenario(scenario_text(spec), "case.yaml", {}).cases.at(0);
      CHECK(content_hash({read}) == content_hash({spec}));
      CHECK(std::find(seen.begin(), seen.end(), content_hash({spec})) == seen.end());
      seen.push_back(content_hash({spec}));
      return ++turn % 3 == 0;
    };
    static_cast<void>(shrink_case(random_case(4, static_cast<std::uint64_t>(index)), fails, never));
  }
}

TEST_CASE("a case that nothing smaller fails, or that may not be tried, stays as it is") {
  const Case drawn = random_case(5, 1);
  const Shrunk none = shrink_case(
      drawn, [](const Case&) { return false; }, never);
  CHECK(content_hash({none.spec}) == content_hash({drawn}));
  CHECK(none.steps == 0);
  CHECK(none.tries > 10);
  const Shrunk stopped = shrink_case(
      drawn, [](const Case&) { return true; }, [] { return true; });
  CHECK(content_hash({stopped.spec}) == content_hash({drawn}));
  CHECK(stopped.tries == 0);
}
