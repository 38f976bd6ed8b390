#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "measure/fake_clock.h"
#include "measure/measure.h"
#include "measure/rotation.h"
#include "support/dishonest.h"
#include "support/near.h"
#include "support/outcomes.h"

using namespace lora_bench;
using namespace lora_bench::test;

namespace {

constexpr double kOp = 5e-6, kSeparator = 4e-6;

// A GPU on which an op that follows an op begins 2 us early, while that one ends, as linked
// launches do. What a run takes is what its launches add.
struct LinkedGpu {
  double early_s = 2e-6;
  double drift_s = 0;  // that a separator takes longer from one run to the next
  bool separates = true;
  Dishonest::Trick trick = honest;  // what the backend does
  std::function<bool()> stop = {};
  std::function<Look(const Left&)> check = {};
  CacheMode cache = CacheMode::kWeightsCold;
  Problem problem = decode();

  double spent_s = 0, slower_s = 0;
  bool op_before = false;
  std::vector<std::string> launched;  // by each run: "o" op, "s" separator
  FakeClock clock{[this](int slot, std::int64_t) {
    const double seconds = spent_s / static_cast<double>(clock.launches(slot));
    spent_s = 0;
    op_before = false;
    slower_s += drift_s;
    launched.emplace_back();
    return seconds;
  }};

  Measurement run() {
    launched.assign(1, "");
    const Dishonest backend([this](const Problem& whole, const Operands& o, const Backend& cpu) {
      trick(whole, o, cpu);
      spent_s += kOp - (op_before ? early_s : 0);
      op_before = true;
      launched.back() += 'o';
    });
    if (separates) {
      clock.set_separator([this](Stream) {
        spent_s += kSeparator + slower_s;
        op_before = false;
        launched.back() += 's';
      });
    }
    MeasureSettings settings = short_measure(cache);
    const MeasureRequest request{problem, settings, 1, check, stop, nullptr};
    DeviceFacts device;
    device.kind = "cpu";
    device.cache_bytes = 4 * touched_bytes(problem, CacheMode::kWeightsCold);
    const auto memory = make_host_memory();
    return measure(request, backend, *memory, clock, device);
  }
};

}  // namespace

TEST_CASE("alone is what an op adds between others, back to back it may overlap itself") {
  LinkedGpu gpu;
  const Measurement result = gpu.run();
  CHECK(result.summary.median == near(kOp - gpu.early_s).epsilon(0.02));
  REQUIRE(result.alone_s.has_value());
  CHECK(*result.alone_s == near(kOp));
  CHECK(*result.alone_noise_s == near(0));
}

TEST_CASE("alone: eleven times the separators, and the same with an op between any two") {
  LinkedGpu gpu;
  const Measurement result = gpu.run();
  const auto launches = static_cast<std::size_t>(result.launches);
  std::string with;
  for (std::size_t i = 0; i < launches; ++i) {
    with += "so";
  }
  with += 's';
  const std::string separators(launches + 1, 's');
  CHECK(std::count(gpu.launched.begin(), gpu.launched.end(), separators) >= 11);
  CHECK(std::count(gpu.launched.begin(), gpu.launched.end(), with) >= 11);
  CHECK(std::count(gpu.launched.begin(), gpu.launched.end(), with) <= 14);  // warm-up too
  CHECK(gpu.clock.launches(2) == gpu.clock.launches(3));
}

TEST_CASE("of what drifts while alone is taken one step is left: the two are sampled in turn") {
  LinkedGpu gpu;
  gpu.drift_s = 10e-9;
  const Measurement result = gpu.run();
  REQUIRE(result.alone_s.has_value());
  const auto launches = static_cast<double>(result.launches);
  CHECK(*result.alone_s == near(kOp + gpu.drift_s * (launches + 1) / launches));
}

TEST_CASE("where launches never overlap alone is the time itself, and no run is made for it") {
  LinkedGpu gpu;
  gpu.separates = false;
  const Measurement result = gpu.run();
  CHECK(result.alone_s == result.summary.median);
  CHECK(result.alone_noise_s == result.noise_s);
  CHECK(gpu.clock.runs(3) == 0);
}

TEST_CASE("an op that adds no more than the noise has no time alone") {
  LinkedGpu gpu;
  std::int64_t runs = 0;
  gpu.clock = FakeClock([&](int slot, std::int64_t) {
    return slot == 3 ? 1e-6 + 1e-6 * static_cast<double>(++runs % 3) : 2e-6;
  });
  const Measurement result = gpu.run();
  CHECK(result.summary.median == near(2e-6));
  CHECK_FALSE(result.alone_s.has_value());
  CHECK_FALSE(row_of(step_of(gpu.problem), proved_and(result)).time.alone_us.has_value());
}

TEST_CASE("a stop while alone is taken leaves it empty and the row interrupted") {
  LinkedGpu gpu;
  gpu.stop = [&] { return gpu.clock.runs(3) > 0; };
  const Measurement result = gpu.run();
  CHECK(result.interrupted);
  CHECK_FALSE(result.alone_s.has_value());
  CHECK(result.samples_s.size() >= 10);
}

TEST_CASE("what the launches between others left is looked at as well") {
  for (const CacheMode cache : {CacheMode::kWeightsCold, CacheMode::kCold, CacheMode::kHot}) {
    for (const bool accumulates : {true, false}) {
      CAPTURE(name(cache));
      CAPTURE(accumulates);
      LinkedGpu gpu;
      gpu.cache = cache;
      gpu.problem.add_inputs = accumulates;
      const Numerics numerics = Dishonest(honest).numerics(gpu.problem);
      gpu.check = [&](const Left& left) { return held_against_oracle(numerics, left); };
      CHECK_MESSAGE(gpu.run().check_passed, "honest");
      // Left out wherever a separator stands before it.
      gpu.trick = [&](const Problem& whole, const Operands& operands, const Backend& cpu) {
        const std::string& run = gpu.launched.back();
        if (run.empty() || run.back() != 's') {
          cpu.launch(whole, operands, {});
        }
      };
      CHECK(gpu.run().check_message.starts_with("left by the timed launches: "));
    }
  }
}

TEST_CASE("a row says alone_us, its noise and how many times the floor it is") {
  Measurement measurement;
  measurement.samples_s = {3e-6, 3e-6};
  measurement.summary = summarize(measurement.samples_s);
  measurement.alone_s = 5e-6;
  measurement.alone_noise_s = 1e-7;
  Row row = row_of(step_of(decode()), proved_and(measurement));
  CHECK(row.time.alone_us == near(5));
  CHECK(row.time.alone_noise_us == near(0.1));
  CHECK_FALSE(row.time.samples_dropped.has_value());  // no clock was read
  row.floor.us = 2;
  derive_metrics(row);
  CHECK(row.floor.ratio == near(1.5));
  CHECK(row.floor.alone_ratio == near(2.5));
  measurement.clock_mhz = 1965;
  measurement.samples_dropped = 4;
  measurement.after.clock_mhz = 1980;
  row = row_of(step_of(decode()), proved_and(measurement));
  CHECK(row.conditions.clock_mhz == 1965);
  CHECK(row.time.samples_dropped == 4);
}
