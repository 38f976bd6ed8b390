#include "measure/measure.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "measure/fake_clock.h"
#include "measure/rotation.h"
#include "measure/statistics.h"
#include "ops/backends.h"
#include "support/cpu_case.h"
#include "support/near.h"
#include "support/observed_backend.h"
#include "support/short_measure.h"
#include "support/wrapped_memory.h"

using namespace lora_bench;
using namespace lora_bench::test;

namespace {

Problem small_linear() {
  Problem problem;
  problem.dtype = OperandDtypes(Dtype::kFp32);
  problem.tokens = 3;
  problem.in_features = 64;
  problem.widths = {96};
  problem.x_stride = 64;
  problem.y_stride = 96;
  problem.slots = 2;
  problem.max_rank = 8;
  problem.rank = {8, 4};
  problem.scale = {1, 1};
  const std::vector<std::int32_t> ids{0, 1, 0};
  problem.plan = make_plan(ids, 2);
  return problem;
}

// Host memory that calls itself a device's.
class DeviceLikeMemory : public WrappedMemory {
 public:
  [[nodiscard]] Space space() const override { return Space::kDevice; }
};

DeviceFacts device(std::int64_t cache_bytes) {
  DeviceFacts facts;
  facts.kind = "cpu";
  facts.cache_bytes = cache_bytes;
  return facts;
}

struct Bench {
  Problem problem = small_linear();
  MeasureSettings wanted = short_measure();
  std::vector<const void*> weights;  // of each launch
  std::set<const void*> inputs, outputs;
  ObservedBackend backend{{.before = [this](const Problem&, const Operands& operands) {
    weights.push_back(operands.a[0]);
    inputs.insert(operands.x);
    outputs.insert(operands.y);
    return true;
  }}};
  std::unique_ptr<Memory> memory = make_host_memory();
  std::int64_t cache_bytes = 4 * touched_bytes(small_linear(), CacheMode::kWeightsCold);
  std::function<bool()> stop;
  std::function<Look(const Left&)> check;

  Measurement run(FakeClock& clock) {
    const MeasureRequest request{problem, wanted, 1, check, stop, nullptr};
    return measure(request, backend, *memory, clock, device(cache_bytes));
  }
};

FakeClock::Script constant(double seconds) {
  return [seconds](int, std::int64_t) { return seconds; };
}

bool warns(const Measurement& measurement, const std::string& start) {
  return std::any_of(measurement.warnings.begin(), measurement.warnings.end(),
                     [&](const std::string& warning) { return warning.starts_with(start); });
}

}  // namespace

TEST_CASE("a sample touches every set, beyond three caches, and shares what must stay warm") {
  Bench bench;
  FakeClock clock(constant(1e-6));
  const Measurement result = bench.run(clock);
  CHECK(result.rotation_sets == 13);
  CHECK(result.rotated_bytes > 3 * bench.cache_bytes);
  CHECK(result.launches % 13 == 0);
  const std::vector<const void*> last_sample(bench.weights.end() - result.launches,
                                             bench.weights.end());
  CHECK(std::set<const void*>(last_sample.begin(), last_sample.end()).size() == 13);
  CHECK(bench.inputs.size() == 1);
  CHECK(bench.outputs.size() == 1);
}

TEST_CASE("cold rotates the activations too, hot rotates nothing") {
  Bench cold;
  cold.wanted = short_measure(CacheMode::kCold);
  FakeClock cold_clock(constant(1e-6));
  const Measurement rotated = cold.run(cold_clock);
  CHECK(rotated.rotation_sets > 1);
  CHECK(static_cast<std::int64_t>(cold.inputs.size()) == rotated.rotation_sets);
  CHECK(static_cast<std::int64_t>(cold.outputs.size()) == rotated.rotation_sets);

  Bench hot;
  hot.wanted = short_measure(CacheMode::kHot);
  FakeClock hot_clock(constant(1e-6));
  const Measurement still = hot.run(hot_clock);
  CHECK(still.rotation_sets == 1);
  CHECK(still.rotated_bytes == 0);
  CHECK(std::set<const void*>(hot.weights.begin(), hot.weights.end()).size() == 1);
}

TEST_CASE("a case too small to fill the cache touches each of a few sets once a sample") {
  Bench bench;
  bench.cache_bytes = std::int64_t{12} << 20;
  FakeClock clock(constant(1e-6));
  const Measurement result = bench.run(clock);
  CHECK(result.rotation_sets == 32);
  CHECK(result.launches == 32);
  CHECK(result.rotated_bytes <= 3 * bench.cache_bytes);
}

TEST_CASE("slow launches go round the sets once, on a device too") {
  Bench bench;
  bench.memory = std::make_unique<DeviceLikeMemory>();
  FakeClock slow(constant(8.5e-3));
  CHECK(bench.run(slow).launches == 13);
  FakeClock quick(constant(1e-6));
  CHECK(bench.run(quick).launches >= 64);
}

TEST_CASE("the time of a sample is divided by its launches") {
  Bench bench;
  FakeClock clock(constant(5e-6));
  const Measurement result = bench.run(clock);
  CHECK(result.summary.median == near(5e-6));
  CHECK(static_cast<double>(result.launches) * 5e-6 >= 1e-3);
  CHECK(result.noise_s == near(0));
}

TEST_CASE("sampling ends once the median is known, not before the least samples") {
  Bench bench;
  bench.wanted.min_time_ms = 0;
  FakeClock clock(constant(1e-6));
  const Measurement result = bench.run(clock);
  CHECK(result.samples_s.size() == 10);
  CHECK(result.warnings.empty());
}

TEST_CASE("the least time prolongs sampling, the most time ends it with a warning") {
  Bench bench;
  bench.wanted.max_samples = 100000;
  bench.wanted.min_time_ms = 50;
  FakeClock clock(constant(10e-6));
  const Measurement result = bench.run(clock);
  const double sample = static_cast<double>(result.launches) * 10e-6;
  CHECK(static_cast<double>(result.samples_s.size()) * sample >= 50e-3 - 1e-9);

  Bench restless;
  restless.wanted.max_samples = 100000;
  restless.wanted.max_time_ms = 20;
  FakeClock jumpy([](int, std::int64_t run) { return run % 4 < 2 ? 5e-6 : 9e-6; });
  const Measurement limited = restless.run(jumpy);
  CHECK(warns(limited, "limit reached"));
  CHECK(warns(limited, "noisy"));
}

TEST_CASE("the least samples outlast the most time, but not five times of it") {
  Bench slow;
  slow.wanted.max_time_ms = 300;
  FakeClock clock(constant(8.5e-3));  // 13 sets: 110 ms a sample
  const Measurement result = slow.run(clock);
  CHECK(result.launches == 13);
  CHECK(result.samples_s.size() == 10);
  CHECK(result.warnings.empty());

  Bench slower;
  slower.wanted.max_time_ms = 100;
  FakeClock slower_clock(constant(8.5e-3));
  const Measurement cut = slower.run(slower_clock);
  CHECK(cut.samples_s.size() == 5);
  CHECK(warns(cut, "limit reached after 5 samples"));
}

TEST_CASE("six samples are taken beyond the most time where fewer were asked for") {
  Bench bench;
  bench.wanted.min_samples = 1;
  bench.wanted.max_time_ms = 150;
  FakeClock clock([](int, std::int64_t run) { return run % 4 < 2 ? 8e-3 : 9e-3; });
  CHECK(bench.run(clock).samples_s.size() == 6);
}

TEST_CASE("noise is at least the gap between two slots of the same code") {
  Bench bench;
  FakeClock clock([](int slot, std::int64_t) { return slot == 0 ? 10e-6 : 11e-6; });
  const Measurement result = bench.run(clock);
  CHECK(result.noise_s == near(1e-6));
}

TEST_CASE("a gap between the slots is noise where the median of all is known well") {
  Bench bench;
  bench.wanted.min_samples = bench.wanted.max_samples = 200;
  std::int64_t runs[2] = {0, 0};
  FakeClock clock([&](int slot, std::int64_t) {
    const bool between = runs[slot]++ % 5 < 2;
    return between ? 10.9e-6 : slot == 0 ? 10e-6 : 11e-6;
  });
  const Measurement result = bench.run(clock);
  CHECK(median_half_width(result.samples_s) < 0.2e-6);
  CHECK(result.noise_s == near(1e-6));
}

TEST_CASE("samples that are ticks of the clock apart are known to half a tick at best") {
  Bench bench;
  bench.wanted.min_samples = bench.wanted.max_samples = 200;
  std::int64_t runs[2] = {0, 0};
  FakeClock clock([&](int slot, std::int64_t) {
    return runs[slot]++ % 10 < 3 ? 0.5e-6 : 1e-6;  // both medians are 1 us, one quartile is 0.5
  });
  clock.set_resolution_seconds(0.5e-6);
  const Measurement result = bench.run(clock);
  CHECK(result.summary.q1 < result.summary.q3);
  CHECK(median_half_width(result.samples_s) == 0);
  CHECK(result.noise_s == near(0.25e-6 / static_cast<double>(result.launches)));
}

TEST_CASE("sets that fill less than three caches are touched once a sample") {
  Bench bench;
  const std::int64_t touched = touched_bytes(bench.problem, CacheMode::kWeightsCold);
  FakeClock clock(constant(1e-6));
  bench.cache_bytes = 16 * touched;  // 32 sets are two of them
  const Measurement two = bench.run(clock);
  CHECK(two.rotation_sets == 32);
  CHECK(two.launches == 32);
  bench.cache_bytes = 8 * touched;  // four
  CHECK(bench.run(clock).launches > bench.run(clock).rotation_sets);
}

TEST_CASE("the slots are sampled in turn") {
  Bench bench;
  FakeClock clock([](int slot, std::int64_t) { return slot == 0 ? 10e-6 : 11e-6; });
  const Measurement result = bench.run(clock);
  for (std::size_t i = 0; i < result.samples_s.size(); ++i) {
    CHECK(result.samples_s[i] == near(i % 2 == 0 ? 10e-6 : 11e-6));
  }
}

TEST_CASE("a stop ends sampling early and is told") {
  Bench bench;
  bench.stop = [] { return true; };
  FakeClock clock(constant(1e-6));
  const Measurement result = bench.run(clock);
  CHECK(result.samples_s.size() == 2);
  CHECK(result.interrupted);
}

TEST_CASE("what the machine did meanwhile becomes warnings, each once") {
  Bench bench;
  FakeClock clock(constant(1e-6));
  Conditions conditions;
  conditions.throttle = "sw_power_cap";
  conditions.load = 1.9;
  conditions.governor = "powersave";
  clock.set_conditions(conditions);
  const Measurement result = bench.run(clock);
  CHECK(result.warnings.size() == 3);
  CHECK(warns(result, "throttled: sw_power_cap"));
  CHECK(warns(result, "busy machine"));
  CHECK(warns(result, "governor: powersave"));
}

TEST_CASE("a load that changes while sampling is one warning, of the worse of the two") {
  Bench bench;
  FakeClock clock(constant(1e-6));
  Conditions conditions;
  conditions.load = 9;
  clock.set_conditions(conditions);
  bench.stop = [&] {
    conditions.load = 2 + (conditions.load - 2) / 2;
    clock.set_conditions(conditions);
    return false;
  };
  const Measurement result = bench.run(clock);
  CHECK(result.before.load > result.after.load + 0.1);
  CHECK(result.after.load >= 2);
  REQUIRE(result.warnings.size() == 1);
  CHECK(result.warnings[0] ==
        fmt::format("busy machine: load {:.1f} per core", result.before.load));
}

TEST_CASE("our own load and an unknown governor are no reason to warn") {
  Bench bench;
  FakeClock clock(constant(1e-6));
  Conditions conditions;
  conditions.load = 1.2;
  clock.set_conditions(conditions);
  CHECK(bench.run(clock).warnings.empty());
}

TEST_CASE("a sample that the clock can hardly tell is called short") {
  Bench bench;
  FakeClock clock(constant(1e-6));
  clock.set_resolution_seconds(1e-4);
  CHECK(warns(bench.run(clock), "short"));
}

TEST_CASE("after timing launches of one set are checked one by one") {
  Bench bench;
  std::int64_t seen = 0;
  bench.check = [&](const Left& left) {
    CHECK(left.sets.front()->fill == Fill::kTiming);
    if (left.rounds > 1 || left.sets.size() > 1 || left.rows.empty() ||
        !left.first_columns.empty()) {
      return Look{};
    }
    ++seen;
    const HostResult once =
        launch_on_host(*make_cpu_backend({1, ""}), left.problem, *left.sets.front());
    return Look{left.output == once.y.data ? "" : "y is not one launch away"};
  };
  FakeClock clock(constant(1e-6));
  CHECK(bench.run(clock).check_message.empty());
  // Another number in B, in A, in each of three rows of x, another x; other scales, other ranks,
  // another batch.
  CHECK(seen == 9);
  bench.check = [](const Left& left) {
    const bool one = left.rounds == 1 && left.sets.size() == 1 && !left.rows.empty() &&
                     left.first_columns.empty();
    return Look{one ? "row 3 is wrong" : ""};
  };
  FakeClock again(constant(1e-6));
  const Measurement wrong = bench.run(again);
  CHECK_FALSE(wrong.check_passed);
  CHECK(wrong.check_message == "with another number in B: row 3 is wrong");
}

TEST_CASE("where replays prove too little, the operands of one sign are the ones that are told") {
  Bench bench;
  bench.problem.add_inputs = false;
  std::int64_t of_one_sign = 0;
  bench.check = [&](const Left& left) {
    if (left.rows.empty() || !left.first_columns.empty()) {
      return Look{};
    }
    const Tensors& tensors = *left.sets.front();
    const auto* const a = reinterpret_cast<const float*>(tensors.a[0].data.data());
    of_one_sign +=
        std::count_if(a, a + tensors.a[0].elements, [](float value) { return value < 0; }) < 9;
    const HostResult once = launch_on_host(*make_cpu_backend({1, ""}), left.problem, tensors);
    return Look{left.output == once.y.data ? "" : "y is not what they give", 1, 1};
  };
  FakeClock clock(constant(1e-6));
  CHECK(bench.run(clock).check_message == "");
  CHECK(of_one_sign >= 4);
}

TEST_CASE("replays begin on y as it was left, then on y as it was drawn") {
  Bench bench;
  const Tensors drawn = draw_tensors(bench.problem, Fill::kTiming, 1);
  std::vector<bool> is_drawn;
  bench.check = [&](const Left& left) {
    if (left.rounds > 1 && left.sets.size() == 1 && !left.rows.empty()) {
      const std::size_t bytes = left.sets.front()->y.data.size() / left.rows.size();
      bool same = true;
      for (std::size_t row = 0; row < left.rows.size(); ++row) {
        const std::size_t whole = static_cast<std::size_t>(left.true_rows[row]) * bytes;
        same = same && std::memcmp(left.sets.front()->y.data.data() + row * bytes,
                                   drawn.y.data.data() + whole, bytes) == 0;
      }
      is_drawn.push_back(same);
    }
    return Look{};
  };
  FakeClock clock(constant(1e-6));
  static_cast<void>(bench.run(clock));
  CHECK(is_drawn == std::vector<bool>{false, true, true, true, true});
}

TEST_CASE("what the timed launches left is checked, with their number") {
  for (const CacheMode cache : {CacheMode::kWeightsCold, CacheMode::kCold, CacheMode::kHot}) {
    CAPTURE(name(cache));
    Bench bench;
    bench.wanted = short_measure(cache);
    bench.wanted.max_samples = 500;
    bench.wanted.min_time_ms = 200;  // long enough for y to be restored in between
    std::size_t of_all = 0, of_one = 0;
    bench.check = [&](const Left& left) {
      of_all += left.rounds > 1 && left.sets.size() == 13 ? 1 : 0;
      of_one += left.rounds > 1 && left.sets.size() == 1 ? 1 : 0;
      return Look{};
    };
    FakeClock clock(constant(5e-6));
    const Measurement result = bench.run(clock);
    const auto sets = static_cast<std::size_t>(result.rotation_sets);
    const std::size_t replays = cache == CacheMode::kHot ? 2 : 5;  // each shows one set
    CHECK(of_all == (cache == CacheMode::kWeightsCold ? 1 : 0));
    CHECK(of_one + of_all == (cache == CacheMode::kCold ? sets : 1) + replays);
  }
}

TEST_CASE("an output that is overwritten is checked in the sequence as it was timed") {
  Bench bench;
  bench.problem.add_inputs = false;
  std::vector<std::size_t> launched;
  bench.check = [&](const Left& left) {
    CHECK(left.rounds == 1);
    CHECK(left.sets.size() == 1);
    CHECK(left.output != left.sets.front()->y.data);
    if (left.first_columns.empty()) {
      launched.push_back(bench.weights.size());
    }
    return Look{};
  };
  FakeClock clock(constant(1e-6));
  const Measurement result = bench.run(clock);
  // Twice each: the whole output and the rows held against the oracle; of four replays the rows.
  REQUIRE(launched.size() == 24);
  CHECK(result.launches % 13 == 0);
  // In between 64 turns round the sets in 14 runs, half of them with new rows, and the sequence
  // once more, of which launches are looked at one by one.
  CHECK(launched[2] == launched[0] + 14 * 64 * 13 + 2 * static_cast<std::size_t>(result.launches));
  CHECK(launched[6] == launched[5] + 2);  // one before, for who remembers it
  CHECK(launched[8] == launched[6] + 1);
  CHECK(launched[16] == launched[6] + 5);
  CHECK(launched[18] == launched[16] + 1);
  CHECK(launched[22] == launched[16] + 3);
}

TEST_CASE("a y that is added to is looked at as old as it ever was in a sample") {
  for (const int samples : {6, 13, 26}) {
    CAPTURE(samples);
    Bench bench;
    bench.problem.dtype = OperandDtypes(Dtype::kBf16);
    bench.wanted.min_samples = bench.wanted.max_samples = samples;
    std::vector<std::int64_t> ages;
    bench.check = [&](const Left& left) {
      ages.push_back(left.rounds);
      return Look{};
    };
    FakeClock clock(constant(1e-3));  // one round of 25 sets is long enough for a sample
    CHECK(bench.run(clock).launches == 25);
    REQUIRE(ages.size() > 1);
    // After the whole output its rows. One sample warms up; y takes 256 launches, 10 rounds of 25.
    CHECK(ages[1] == std::min(samples + 1, 10));
  }
}

TEST_CASE("the output of a timed shrink is read from h") {
  Bench bench;
  bench.problem.op = Op::kShrink;
  bench.check = [&](const Left& left) {
    const std::int64_t lanes = left.problem.tokens * left.problem.max_rank;
    return Look{std::ssize(left.output) == 4 * lanes ? "" : "not h"};
  };
  FakeClock clock(constant(1e-6));
  CHECK(bench.run(clock).check_passed);
}

TEST_CASE("a batch without adapters can be timed") {
  Bench bench;
  const std::vector<std::int32_t> none{-1, -1, -1};
  bench.problem.plan = make_plan(none, 2);
  FakeClock clock(constant(1e-6));
  CHECK(bench.run(clock).summary.median == near(1e-6));
}

TEST_CASE("a case that cannot fit is refused with the figures") {
  Bench bench;
  bench.cache_bytes = std::int64_t{1} << 50;
  FakeClock clock(constant(1e-6));
  CHECK_THROWS_AS(static_cast<void>(bench.run(clock)), CaseError);
}
