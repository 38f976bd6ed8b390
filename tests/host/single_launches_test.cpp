#include "measure/after_timing.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "core/random.h"
#include "support/dishonest.h"
#include "support/draws.h"

using namespace lora_bench;
using namespace lora_bench::test;

namespace {

constexpr std::int64_t kSets = 5;

struct Rotation {
  Op op = Op::kLinear;
  bool add_inputs = true;
  CacheMode cache = CacheMode::kWeightsCold;
  std::int64_t launches = 64;
  std::vector<std::int64_t> own_rank = {};  // lanes behind them hold zeros
};

// The looks at single launches of a backend that does what `trick` says, in a sequence that was
// timed a moment ago.
SingleLaunches looked_at(const Rotation& rotation, const Dishonest::Trick& trick,
                         std::uint64_t secret = 12) {
  Problem problem = decode(rotation.op);
  problem.add_inputs = rotation.add_inputs;
  if (!rotation.own_rank.empty()) {
    problem.own_rank = rotation.own_rank;
    problem.max_rank = 64;
    problem.rank.assign(problem.rank.size(), problem.max_rank);
  }
  const Dishonest backend(trick);
  const Numerics numerics = backend.numerics(problem);
  const Tensors tensors = draw_tensors(problem, Fill::kTiming, 1);
  const std::unique_ptr<Memory> memory = make_host_memory();
  const std::int64_t count = rotation.cache == CacheMode::kHot ? 1 : kSets;
  OperandSets sets(*memory, problem, tensors, backend, rotation.cache, count);
  const MeasureSettings settings = short_measure(rotation.cache);
  const MeasureRequest request{
      problem, settings, 1, [&](const Left& left) { return held_against_oracle(numerics, left); },
      nullptr, nullptr};
  const auto launch_of = [&](std::int64_t set) {
    return Launch([&, set](Stream stream) { backend.launch(problem, sets.operands(set), stream); });
  };
  const auto run = [&](std::vector<Launch> sequence) {
    sets.restore_y();
    sets.poison_h();
    for (const Launch& launch : sequence) {
      launch({});
    }
  };
  std::vector<Launch> timed;
  for (std::int64_t position = 0; position < rotation.launches; ++position) {
    timed.push_back(launch_of(position % count));
  }
  run(timed);
  return look_at_single_launches(
      {request, tensors, sets, *memory, rotation.launches, launch_of, run, [] { return 0.0; }},
      secret);
}

std::vector<Rotation> rotations() {
  std::vector<Rotation> all;
  for (const Op op : {Op::kShrink, Op::kExpand, Op::kLinear, Op::kEmbedding, Op::kLogits}) {
    for (const bool add_inputs : {true, false}) {
      for (const CacheMode cache : {CacheMode::kWeightsCold, CacheMode::kCold, CacheMode::kHot}) {
        if (op != Op::kShrink || add_inputs) {
          all.push_back({op, add_inputs, cache, 65});
        }
      }
    }
  }
  return all;
}

// Leaves a launch out where `leaves_out` says so, of its own counting.
Dishonest::Trick lazy(std::function<bool(std::int64_t launch, const Operands&)> leaves_out) {
  auto launches = std::make_shared<std::int64_t>(0);
  return [=](const Problem& problem, const Operands& operands, const Backend& backend) {
    if (!leaves_out((*launches)++, operands)) {
      backend.launch(problem, operands, {});
    }
  };
}

}  // namespace

TEST_CASE(
    "single launches: of honest ones enough are seen, whatever rotates, and nothing is said") {
  for (const Rotation& rotation : rotations()) {
    CAPTURE(name(rotation.op));
    CAPTURE(name(rotation.cache));
    CAPTURE(rotation.add_inputs);
    for (const std::int64_t launches : {1, 13, 65, 200}) {
      Rotation of = rotation;
      of.launches = launches;
      CAPTURE(launches);
      const SingleLaunches seen = looked_at(of, honest);
      CHECK(seen.wrong == "");
      CHECK(seen.looks > 0);
      CHECK(10 * seen.telling >= 9 * seen.looks);
      CHECK_FALSE(too_much_unseen(seen));
    }
  }
}

TEST_CASE("single launches: of adapters padded with zeros enough are seen") {
  for (Rotation of : rotations()) {
    CAPTURE(name(of.op));
    CAPTURE(name(of.cache));
    CAPTURE(of.add_inputs);
    of.own_rank = {1, 2, 8};
    const SingleLaunches seen = looked_at(of, honest);
    CHECK(seen.wrong == "");
    CHECK(10 * seen.telling >= 9 * seen.looks);
    CHECK_FALSE(too_much_unseen(seen));
  }
}

TEST_CASE(
    "single launches: one in n that is left out is seen in every op and cache, by any count") {
  for (const Rotation& rotation : rotations()) {
    const bool plainest = rotation.op == Op::kShrink && rotation.cache == CacheMode::kWeightsCold;
    const std::int64_t seeds = test::draws(plainest ? 50 : 8);
    for (const std::int64_t n : {2, 3, 5, 7, 10, 20}) {
      std::int64_t by_count = 0, by_chance = 0;
      for (std::int64_t seed = 0; seed < seeds; ++seed) {
        const auto secret = static_cast<std::uint64_t>(seed);
        const auto every =
            lazy([=](std::int64_t launch, const Operands&) { return launch % n == seed % n; });
        by_count += looked_at(rotation, every, secret).wrong.empty() ? 0 : 1;
        const auto some = lazy([=](std::int64_t launch, const Operands&) {
          return random_below(secret + 77, 1, static_cast<std::uint64_t>(launch),
                              static_cast<std::uint64_t>(n)) == 0;
        });
        by_chance += looked_at(rotation, some, secret).wrong.empty() ? 0 : 1;
      }
      CAPTURE(name(rotation.op));
      CAPTURE(name(rotation.cache));
      CAPTURE(rotation.add_inputs);
      CAPTURE(n);
      CHECK(by_count == seeds);
      CHECK(by_chance == seeds);
    }
  }
}

TEST_CASE("single launches: those of one set, of an unfinished output or of most rows are seen") {
  for (const Rotation& rotation : rotations()) {
    CAPTURE(name(rotation.op));
    CAPTURE(name(rotation.cache));
    CAPTURE(rotation.add_inputs);
    for (std::uint64_t secret = 0; secret < 10; ++secret) {
      const bool shrinks = has_shrink(rotation.op);
      const void* first = nullptr;
      const auto of_one_set = lazy([&](std::int64_t launch, const Operands& operands) {
        const void* const weights = shrinks ? operands.a[0] : operands.b[0];
        first = first == nullptr ? weights : first;
        return launch >= 65 && weights == first;
      });
      CHECK(looked_at(rotation, of_one_set, secret).wrong != "");
      // Where what lies there is a number already, as a launch before left it.
      const auto over_numbers = lazy([&](std::int64_t launch, const Operands& operands) {
        const void* const output = has_expand(rotation.op) ? operands.y : operands.h;
        return launch % 7 == 3 && first_eight(output) != UINT64_MAX;
      });
      CHECK(looked_at(rotation, over_numbers, secret).wrong != "");
    }
  }
}

TEST_CASE("single launches: a declaration so loose that nothing tells leaves all unseen") {
  Problem problem = decode();
  problem.in_features = problem.x_stride = 1024;
  const Dishonest vague(honest, 0x1p-8);
  const Measurement measured = measurement_of(problem, vague);
  CHECK(measured.single.wrong == "");
  CHECK(measured.single.looks > 0);
  CHECK(measured.single.telling == 0);
  CHECK(unseen_share(measured.single) == 1);
  CHECK(too_much_unseen(measured.single));
}

TEST_CASE("single launches: what could be missing unseen follows from how many looks tell") {
  SingleLaunches seen;
  seen.looks = 400;
  seen.telling = 342;  // 0.98^342 = 0.000997
  CHECK(unseen_share(seen) < 0.02);
  CHECK_FALSE(too_much_unseen(seen));
  seen.telling = 341;
  CHECK(unseen_share(seen) > 0.02);
  CHECK(too_much_unseen(seen));
  // Less than half of the samples move no median.
  seen.whole_runs = 10;
  CHECK_FALSE(too_much_unseen(seen));
  CHECK_FALSE(too_much_unseen({}));  // nothing to look at
}
