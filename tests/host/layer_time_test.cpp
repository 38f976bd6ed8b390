#include "measure/layer_time.h"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "measure/fake_clock.h"
#include "ops/backends.h"
#include "support/layer_case.h"
#include "support/near.h"
#include "support/observed_backend.h"
#include "support/outcomes.h"
#include "support/timed_layer.h"
#include "verify/layer_proof.h"

using namespace lora_bench;

namespace {

LayerMeasurement measured(const LayerProblem& problem, Clock& clock, const Backend& lora,
                          double max_time_ms = 2000, bool together = false, bool phases = false) {
  LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 1);
  MeasureSettings settings = six_samples();
  settings.max_time_ms = max_time_ms;
  settings.phases = phases;
  return timed_layer(problem, tensors, clock, lora, settings, together);
}

LayerMeasurement measured_together(const LayerProblem& problem, Clock& clock, const Backend& lora) {
  return measured(problem, clock, lora, 2000, true);
}

Row held_to_ceilings(const LayerProblem& problem, Outcome outcome, const Ceilings& ceilings) {
  outcome.ceilings = ceilings;
  return test::row_of(test::step_of(problem), outcome);
}

Row row_of_time(const LayerMeasurement& measurement) {
  return test::row_of(test::step_of(row_layer(1, false)), test::proved_and(measurement));
}

Case exchanging(Comm comm) {
  Case spec;
  spec.setup.comm = comm;
  return spec;
}

}  // namespace

TEST_CASE("the tax of a layer is what it takes longer than its base, of the slowest shard") {
  for (const bool fully_sharded : {false, true}) {
    // Every run takes longer than the one before, so the last shard is the slowest.
    FakeClock clock([](int slot, std::int64_t run) {
      return (slot == 0 ? 10e-6 : 13e-6) + 1e-9 * static_cast<double>(run);
    });
    const LayerMeasurement result =
        measured(row_layer(2, fully_sharded), clock, *make_cpu_backend({1, ""}));
    CHECK(result.shard == 1);
    CHECK(result.tax_s == near(3e-6).epsilon(0.01));
    CHECK(result.base_s + result.tax_s == near(result.layer.summary.median));
    CHECK(result.layer.samples_s.size() == 6);
    CHECK(result.layer.baseline_s.size() == 6);
    CHECK(result.tax_noise_s < 1e-8);
    CHECK_MESSAGE(result.layer.check_passed, result.layer.check_message);
  }
}

TEST_CASE("work that is left out once a layer is timed is found") {
  FakeClock clock([](int, std::int64_t) { return 10e-6; });
  std::int64_t launches = 0;
  const LayerMeasurement result = measured(
      row_layer(2, false), clock, ObservedBackend({.before = [&](const Problem&, const Operands&) {
        return ++launches <= 20;
      }}));
  CHECK_FALSE(result.layer.check_passed);
  CHECK(result.layer.check_message.find("elements are wrong") != std::string::npos);
}

TEST_CASE("any operand set of a layer may be the one that is looked at after timing") {
  bool found = false;
  for (int turn = 0; turn < 40 && !found; ++turn) {  // of two sets
    FakeClock clock([](int, std::int64_t) { return 10e-6; });
    const void* first = nullptr;
    const LayerMeasurement result =
        measured(row_layer(1, false), clock,
                 ObservedBackend({.before = [&](const Problem&, const Operands& operands) {
                   first = first == nullptr ? operands.y : first;
                   return operands.y == first;
                 }}));
    found = !result.layer.check_passed;
  }
  CHECK(found);
}

TEST_CASE("a weight that changes while a layer is timed is told where no result shows it") {
  FakeClock clock([](int, std::int64_t) { return 10e-6; });
  const auto change = [](const Problem& problem, const Operands& operands) {
    // The last lane of the second adapter, of rank 3.
    auto* const a = static_cast<std::uint16_t*>(const_cast<void*>(operands.a[0]));
    a[2 * problem.max_rank * problem.in_features - 1] = 0x4000;
  };
  for (const bool together : {false, true}) {
    CAPTURE(together);
    const LayerMeasurement result =
        measured(row_layer(1, false), clock, ObservedBackend({.after = change}), 2000, together);
    CHECK_FALSE(result.layer.check_passed);
    CHECK(result.layer.check_message.find("was changed") != std::string::npos);
  }
}

TEST_CASE("a tax is known no better than the times that it is the difference of") {
  Measurement steady;
  steady.samples_s.assign(8, 13e-6);
  steady.baseline_s.assign(8, 10e-6);
  CHECK(noise_of_tax(steady, 3e-6) == near(0));
  steady.noise_s = 2e-6;
  CHECK(noise_of_tax(steady, 3e-6) == 2e-6);
  // Two medians of which none belongs to the median of the pairs.
  steady.noise_s = 0;
  CHECK(noise_of_tax(steady, 5e-6) == near(2e-6));
}

TEST_CASE("the floor of a tax is that of what adapters add, nothing where no row has one") {
  Ceilings ceilings;
  ceilings.memory_curve = ceilings.cache_curve = {{64, 1e-6}, {1 << 30, 1}};
  ceilings.peaks = {{Dtype::kBf16, 1e12}};
  LayerProblem problem = row_layer(1, false);
  Row row = held_to_ceilings(problem, {}, ceilings);
  CHECK(row.tax.floor_us.value_or(0) > 0);
  const ShardProblem shard = shard_problem(problem, 0);
  const LayerWork work = count_layer_work(shard);
  const auto floor_us = [&](const Work& part) {
    return 1e6 * floor_of(part, shard.lora, CacheMode::kWeightsCold, ceilings).seconds;
  };
  CHECK(row.floor.us == doctest::Approx(floor_us(work.layer)));
  CHECK(row.tax.floor_us == doctest::Approx(floor_us(work.layer) - floor_us(work.base)));
  CHECK(*row.tax.floor_us < *row.floor.us);
  problem.lora.plan = make_plan(std::vector<std::int32_t>{-1, -1, -1, -1}, 2);
  row = held_to_ceilings(problem, {}, ceilings);
  CHECK(row.tax.floor_us == 0.0);
}

TEST_CASE("a base that is quicker than its floor allows is INVALID: its tax would be too large") {
  Ceilings ceilings;
  ceilings.memory_curve = ceilings.cache_curve = {{64, 1e-6}, {1 << 30, 1}};
  const LayerProblem problem = row_layer(1, false);
  const ShardProblem shard = shard_problem(problem, 0);
  const double least_us =
      1e6 *
      floor_of(count_layer_work(shard).base, shard.lora, CacheMode::kWeightsCold, ceilings).seconds;
  const auto judged = [&](double base_us) {
    return held_to_ceilings(
        problem, test::proved_and(test::timed_beside(base_us, 1e6, 0.1 * least_us)), ceilings);
  };
  CHECK(judged(0.91 * least_us).status == Status::kPassed);
  CHECK(judged(0.89 * least_us).status == Status::kInvalid);
  CHECK(judged(0.89 * least_us).message.find("base_us of ") == 0);
}

TEST_CASE(
    "the floor of a layer is that of the shard that was timed, not of another or of the whole") {
  constexpr std::int64_t kBytesPerUs = 1 << 20;
  Ceilings ceilings;  // a straight line, so that a floor tells its bytes
  ceilings.memory_curve = ceilings.cache_curve = {{1000000 * kBytesPerUs, 1}};
  const auto floor_bytes = [&](const LayerProblem& problem, std::int64_t shard) {
    LayerMeasurement measurement = test::timed_beside(500, 1000, 0);
    measurement.shard = shard;
    const Row row = held_to_ceilings(problem, test::proved_and(measurement), ceilings);
    CHECK(row.layer.shard == shard);
    return std::array{std::llround(*row.floor.us * kBytesPerUs),
                      std::llround(*row.tax.floor_us * kBytesPerUs)};
  };
  // Half of W and x, all of y; of the first shard a bias. Of A half of the columns, all of B.
  LayerProblem problem = row_layer(2, false);
  problem.base_bias = true;
  constexpr std::int64_t kBase = 2 * (32 * 32 + 4 * 32 + 4 * 32), kAdapters = 2 * 11 * (32 + 32);
  CHECK(floor_bytes(problem, 0) == std::array<long long, 2>{kBase + 2 * 32 + kAdapters, kAdapters});
  CHECK(floor_bytes(problem, 1) == std::array<long long, 2>{kBase + kAdapters, kAdapters});
  // Fully sharded, lanes of A go to the first shards: 4 + 3 and 4 + 0 of the two adapters.
  problem = row_layer(2, true);
  problem.layer.kind = LayerKind::kColumn;
  problem = make_layer_problem(problem.layer, problem.lora);
  constexpr std::int64_t kColumns = 2 * (16 * 64 + 4 * 64 + 4 * 16), kB = 2 * 11 * 16;
  for (const std::int64_t shard : {0, 1}) {
    const std::int64_t added = 2 * (shard == 0 ? 4 + 3 : 4) * 64 + kB;
    CHECK(floor_bytes(problem, shard) == std::array<long long, 2>{kColumns + added, added});
  }
}

TEST_CASE("a shrink that is left out while a layer is timed is found where h is exchanged") {
  FakeClock clock([](int, std::int64_t) { return 10e-6; });
  std::set<const void*> shrunk;
  const LayerMeasurement result =
      measured(row_layer(2, true), clock,
               ObservedBackend({.before = [&](const Problem& problem, const Operands& o) {
                 return problem.op != Op::kShrink || shrunk.insert(o.h).second;
               }}));
  CHECK(shrunk.size() > 2);
  CHECK_FALSE(result.layer.check_passed);
}

TEST_CASE("a sample of a layer finds no h of the one before, and its base has no adapters") {
  std::int64_t launches = 0, fresh = 0;
  std::vector<std::pair<int, std::int64_t>> runs;  // slot, and all launches until then
  FakeClock clock([&](int slot, std::int64_t) {
    runs.emplace_back(slot, launches);
    return 10e-6;
  });
  const LayerMeasurement result =
      measured(row_layer(1, false), clock,
               ObservedBackend({.before = [&](const Problem&, const Operands& operands) {
                 ++launches;
                 fresh += std::isnan(*static_cast<const float*>(operands.h)) ? 1 : 0;
                 return true;
               }}));
  CHECK_MESSAGE(result.layer.check_passed, result.layer.check_message);
  CHECK(fresh >= 6);
  REQUIRE(runs.size() >= 12);
  for (std::size_t run = 1; run < runs.size(); ++run) {
    const std::int64_t adapters = runs[run].second - runs[run - 1].second;
    CHECK((adapters > 0) == (runs[run].first == 1));
  }
}

TEST_CASE("shards that run together are timed with what they exchange, and that by itself") {
  const LayerProblem problem = row_layer(2, true);
  FakeClock clock([](int slot, std::int64_t) {
    constexpr std::array<double, 4> kSeconds{10e-6, 13e-6, 2e-6, 1e-6};
    return kSeconds[static_cast<std::size_t>(slot)];
  });
  const LayerMeasurement result = measured_together(problem, clock, *make_cpu_backend({1, ""}));
  CHECK(result.together);
  CHECK_MESSAGE(result.layer.check_passed, result.layer.check_message);
  CHECK(result.tax_s == near(3e-6));
  CHECK(*result.comm_h_s == near(1e-6));
  CHECK(*result.comm_s == near(3e-6));
  const Row row =
      test::row_of(test::step_of(problem), test::proved_and(result), exchanging(Comm::kNccl));
  CHECK(row.layer.comm == "nccl");
  CHECK_FALSE(row.layer.shard);
  CHECK(*row.layer.comm_us == doctest::Approx(3));
  CHECK(*row.layer.comm_h_us == doctest::Approx(1));
  // Of two shards each sends half of both sums and gets half: h [4, 8] in fp32, y [4, 32] in bf16.
  CHECK(*row.layer.comm_bytes == 4 * 8 * 4 + 4 * 32 * 2);
}

TEST_CASE(
    "a layer without exchanges has none to time, and other rows than one timed shard by shard") {
  LayerProblem problem = row_layer(2, false);
  problem.layer.kind = LayerKind::kColumn;
  problem = make_layer_problem(problem.layer, problem.lora);
  FakeClock clock([](int, std::int64_t) { return 10e-6; });
  const LayerMeasurement result = measured_together(problem, clock, *make_cpu_backend({1, ""}));
  CHECK_MESSAGE(result.layer.check_passed, result.layer.check_message);
  CHECK(*result.comm_s == 0);
  const auto row = [&](Comm comm) {
    return test::row_of(test::step_of(problem), test::proved_and(result), exchanging(comm));
  };
  const Row together = row(Comm::kNccl), alone = row(Comm::kNone);
  CHECK(*together.layer.comm_bytes == 0);
  CHECK(together.step.content != alone.step.content);
}

TEST_CASE("work that is left out while shards run together is found") {
  FakeClock clock([](int, std::int64_t) { return 10e-6; });
  std::int64_t launches = 0;
  const LayerMeasurement result = measured_together(
      row_layer(2, true), clock, ObservedBackend({.before = [&](const Problem&, const Operands&) {
        return ++launches <= 20;
      }}));
  CHECK_FALSE(result.layer.check_passed);
}

TEST_CASE("adapters that seem to save time have no tax") {
  FakeClock clock([](int slot, std::int64_t) { return slot == 0 ? 13e-6 : 10e-6; });
  const LayerMeasurement result = measured(row_layer(1, false), clock, *make_cpu_backend({1, ""}));
  CHECK(result.tax_s < 0);
  CHECK(result.tax_noise_s >= -result.tax_s);
}

TEST_CASE("a layer too slow for its time has two samples of each all the same") {
  FakeClock clock([](int, std::int64_t) { return 3.0; });
  const LayerMeasurement result =
      measured(row_layer(1, false), clock, *make_cpu_backend({1, ""}), 1);
  CHECK(result.layer.samples_s.size() == 2);
  CHECK(result.layer.baseline_s.size() == 2);
}

TEST_CASE("a tax below its noise is no number") {
  const Row row = row_of_time(test::timed_beside(9.5, 10, 1));
  CHECK_FALSE(row.tax.us);
  CHECK(row.warning == "tax < noise (1 us)");
  CHECK(row_of_time(test::timed_beside(9.5, 10, 2214.7)).warning == "tax < noise (2215 us)");
  const Row known = row_of_time(test::timed_beside(9.5, 10, 0.1));
  CHECK(*known.tax.us == doctest::Approx(0.5));
  CHECK(*known.tax.pct == doctest::Approx(100 * 0.5 / 9.5));
}

// Its noise is no less than what it is below 0, but that is worked out in seconds.
TEST_CASE("a tax below 0 is no number, however its noise is rounded") {
  LayerMeasurement measurement = test::timed_beside(116.6, 112.1, 0);
  measurement.tax_noise_s = std::nextafter(4.5e-6, 0.0) * (1 - 1e-14);
  const Row row = row_of_time(measurement);
  CHECK_FALSE(row.tax.us);
  CHECK(row.warning == "tax < noise (4.5 us)");
}

TEST_CASE("adapters cost a layer their own weights and products, its rows pass by anyway") {
  const LayerWork plain = count_layer_work(shard_problem(row_layer(2, false), 1));
  // W, x and y; then the lanes of A and B of both adapters.
  CHECK(plain.base.bytes == 2 * (32 * 32 + 4 * 32 + 4 * 32));
  CHECK(plain.base.flops == 2 * 4 * 32 * 32);
  CHECK(plain.layer.bytes - plain.base.bytes == 2 * (8 + 3) * (32 + 32));
  CHECK(plain.layer.weight_bytes - plain.base.weight_bytes == 2 * (8 + 3) * (32 + 32));
  CHECK(plain.layer.flops - plain.base.flops == 2 * (2 * 8 + 3) * (32 + 32));
  // Fully sharded, the shard has half of B's rows.
  const LayerWork full = count_layer_work(shard_problem(row_layer(2, true), 1));
  CHECK(full.layer.bytes - full.base.bytes == 2 * (8 + 3) * (32 + 16));
  // Weights of eight bits have one byte each. The cut at 32 of 64 leaves blocks of 20 columns to
  // the first shard, and such of 4 to the second.
  const LayerProblem scaled = with_eight_bits(row_layer(2, false), {WeightsScale::kBlock, 4, 20});
  const auto bytes_of_adapters = [&](std::int64_t rank) {
    const LayerWork work = count_layer_work(shard_problem(scaled, rank));
    CHECK(work.base.bytes == plain.base.bytes);
    return work.layer.bytes - work.base.bytes;
  };
  CHECK(bytes_of_adapters(0) == (8 + 3) * (32 + 32) + 4 * ((2 + 1) * 2 + 8 * (1 + 1)));
  CHECK(bytes_of_adapters(1) == (8 + 3) * (32 + 32) + 4 * ((2 + 1) * 8 + 8 * (2 + 1)));
  // The first term of a sum has the base's bias.
  LayerProblem biased = row_layer(2, false);
  biased.base_bias = true;
  CHECK(count_layer_work(shard_problem(biased, 0)).base.bytes == plain.base.bytes + 2 * 32);
  CHECK(count_layer_work(shard_problem(biased, 1)).base.bytes == plain.base.bytes);
}

TEST_CASE("a tax has parts: shrink after the base, expand after both, and what they leave") {
  for (const bool fully_sharded : {false, true}) {
    LayerProblem problem = row_layer(2, fully_sharded);
    for (const Overlap overlap : {Overlap::kSerial, Overlap::kShrink, Overlap::kDelta}) {
      if (fully_sharded && overlap == Overlap::kDelta) {
        continue;
      }
      problem.overlap = overlap;
      // The base takes 10, shrink 4, expand 5, and both as one op 7.
      std::int64_t shrinks = 0;
      FakeClock clock([&](int slot, std::int64_t) {
        const bool halves = std::exchange(shrinks, 0) > 0;
        return slot == 0 ? (halves ? 14e-6 : 10e-6) : (halves ? 19e-6 : 17e-6);
      });
      const ObservedBackend lora({.before = [&](const Problem& part, const Operands&) {
        shrinks += part.op == Op::kShrink ? 1 : 0;
        return true;
      }});
      const LayerMeasurement result = measured(problem, clock, lora, 2000, false, true);
      CHECK_MESSAGE(result.layer.check_passed, result.layer.check_message);
      REQUIRE(result.shrink_s.has_value());
      const Row row = row_of_time(result);
      CHECK(*row.time.shrink_us == doctest::Approx(4));
      CHECK(*row.time.expand_us == doctest::Approx(5));
      const bool in_one = !fully_sharded && overlap != Overlap::kShrink;
      CHECK(*row.time.gap_us == doctest::Approx(in_one ? -2 : 0));
      CHECK(*row.time.shrink_us + *row.time.expand_us + *row.time.gap_us ==
            doctest::Approx(*row.tax.us));
    }
  }
}

TEST_CASE("halves that are other code than the whole are looked at too") {
  FakeClock clock([](int slot, std::int64_t) { return slot == 0 ? 10e-6 : 13e-6; });
  CHECK_THROWS_AS(
      static_cast<void>(measured(
          row_layer(2, false), clock,
          ObservedBackend({.before = [](const Problem& part,
                                        const Operands&) { return part.op != Op::kExpand; }}),
          2000, false, true)),
      CaseError);
}
