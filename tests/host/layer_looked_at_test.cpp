#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "measure/fake_clock.h"
#include "measure/layer_time.h"
#include "support/launch_for.h"
#include "support/observed_backend.h"
#include "support/timed_layer.h"

using namespace lora_bench;

namespace {

LayerMeasurement measured(const LayerProblem& problem, Clock& clock, const Backend& lora,
                          bool together, bool phases) {
  LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 1);
  MeasureSettings settings = six_samples();
  settings.phases = phases;
  return timed_layer(problem, tensors, clock, lora, settings, together);
}

}  // namespace

TEST_CASE("no shard of a layer finds an h of before where a sample begins") {
  for (const bool together : {false, true}) {
    CAPTURE(together);
    std::set<const void*> in_run;  // every h that the run has launched on
    std::int64_t begins = 0, stale = 0;
    bool looked_at = false;  // from then on few sets have other numbers
    FakeClock clock([&](int slot, std::int64_t run) {
      in_run.clear();
      if (slot == 1) {
        stale = together && run < 2 ? 0 : stale;  // first it is asked how long a run takes
        looked_at = looked_at || run == (together ? 8 : 13);
      }
      return 10e-6;
    });
    const ObservedBackend looks({.before = [&](const Problem&, const Operands& operands) {
      if (!looked_at && in_run.insert(operands.h).second) {
        ++begins;
        stale += std::isnan(*static_cast<const float*>(operands.h)) ? 0 : 1;
      }
      return true;
    }});
    const LayerMeasurement result = measured(row_layer(2, false), clock, looks, together, false);
    CHECK_MESSAGE(result.layer.check_passed, result.layer.check_message);
    CHECK(begins > 2 * 6);
    CHECK(stale == 0);
  }
}

// What an earlier run left is no result of the one that is looked at: what rests in that run alone
// finds nothing there.
TEST_CASE("work that is left out of the very run of a layer that is looked at is found") {
  struct Rest {
    std::string who;
    bool base, shrink, expand, fully_sharded;
    Overlap overlap;
  };
  const std::vector<Rest> rests{
      {"nobody", false, false, false, true, Overlap::kSerial},
      {"all", true, true, true, false, Overlap::kSerial},
      {"a delta of its own", false, true, true, false, Overlap::kDelta},
      {"the shrink before an exchange", false, true, false, true, Overlap::kSerial}};
  for (const bool together : {false, true}) {
    for (const Rest& rest : rests) {
      if (together && rest.overlap != Overlap::kSerial) {
        continue;
      }
      CAPTURE(together);
      CAPTURE(rest.who);
      LayerProblem problem = row_layer(2, rest.fully_sharded);
      problem.overlap = rest.overlap;
      // Six samples of each shard and that run; together two runs before them.
      bool resting = false;
      std::int64_t rested = 0;
      FakeClock clock([&](int slot, std::int64_t run) {
        const std::int64_t next = run + 1;
        if (slot == 1) {
          resting = together ? next == 8 : next == 6 || next == 13;
        }
        return 10e-6;
      });
      const auto works = [&](bool may_rest) {
        rested += resting && may_rest ? 1 : 0;
        return !(resting && may_rest);
      };
      const ObservedBackend lora({.before = [&](const Problem& part, const Operands&) {
        return works(part.op == Op::kShrink ? rest.shrink : rest.expand);
      }});
      LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 1);
      const LayerMeasurement result = timed_layer(
          problem, tensors, clock, lora, six_samples(), together,
          std::make_unique<ObservedBackend>(ObservedBackend::Hooks{
              .before = [&](const Problem&, const Operands&) { return works(rest.base); }}));
      CHECK(result.layer.check_passed == (rested == 0));
      CHECK((rested == 0) == (&rest == &rests.front()));
    }
  }
}

TEST_CASE("rows that are left as they were while x changes in others are found") {
  LayerProblem problem = row_layer(1, false);
  problem.overlap = Overlap::kDelta;
  // Six samples, the run that is looked at, one with other numbers in B and in A, one with all as
  // it was, one with other numbers in x.
  bool other_x = false;
  FakeClock clock([&](int slot, std::int64_t run) {
    other_x = slot == 1 ? run == 9 : other_x;
    return 10e-6;
  });
  const std::unique_ptr<Backend> cpu = make_cpu_backend({1, ""});
  std::vector<std::uint16_t> known;
  std::int64_t left = 0;
  const ObservedBackend lazy({.before = [&](const Problem& whole, const Operands& operands) {
    const auto* const x = static_cast<const std::uint16_t*>(operands.x);
    if (!other_x) {
      known.assign(x, x + whole.tokens * whole.x_stride);
      return true;
    }
    std::vector<std::int32_t> ids = whole.plan.adapter_of_token;
    for (std::int64_t row = 0; row < whole.tokens; ++row) {
      const std::int64_t first = row * whole.x_stride;
      std::int32_t& id = ids[static_cast<std::size_t>(row)];
      if (id >= 0 && std::equal(x + first, x + first + whole.in_features, known.data() + first)) {
        id = kNoAdapter;
        ++left;
      }
    }
    test::launch_for(ids, whole, operands, *cpu);
    return false;
  }});
  const LayerMeasurement result = measured(problem, clock, lazy, false, false);
  CHECK(left > 0);
  CHECK_MESSAGE(result.layer.check_message.starts_with("with another number in x: memory: NaN"),
                result.layer.check_message);
}

TEST_CASE("halves are looked at by what they leave, not by what the whole left before") {
  LayerProblem problem = row_layer(1, false);
  problem.overlap = Overlap::kDelta;
  // Six samples, the run that is looked at, seven with other numbers, six samples of halves.
  std::int64_t rests = 0, rested = 0;
  FakeClock clock([&](int slot, std::int64_t run) {
    rests = slot == 1 && run == 19 ? 2 : rests;
    return slot == 0 ? 10e-6 : 13e-6;
  });
  const ObservedBackend lora({.before = [&](const Problem& part, const Operands&) {
    const bool rest = rests > 0 && part.op != Op::kLinear;
    rests -= rest ? 1 : 0;
    rested += rest ? 1 : 0;
    return !rest;
  }});
  CHECK_THROWS_AS(static_cast<void>(measured(problem, clock, lora, false, true)), CaseError);
  CHECK(rested == 2);
}
