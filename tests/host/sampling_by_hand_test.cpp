#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "measure/fake_clock.h"
#include "measure/sampling.h"

using namespace lora_bench;

namespace {

MeasureSettings settings_of(std::int64_t samples) {
  MeasureSettings settings;
  settings.warmup_ms = 0;
  settings.min_time_ms = 0;
  settings.min_samples = settings.max_samples = samples;
  return settings;
}

// Of a clock whose runs take these seconds in turn, the run that warms up before them.
Measurement sampled(const MeasureSettings& settings, const std::vector<double>& seconds,
                    const Conditions& conditions = {}, double resolution_seconds = 0) {
  std::size_t run = 0;
  FakeClock clock(
      [&](int, std::int64_t) { return run++ == 0 ? 1 : seconds[(run - 2) % seconds.size()]; });
  for (const int slot : {0, 1}) {
    clock.load(slot, {[](Stream) {}});
  }
  clock.set_conditions(conditions);
  clock.set_resolution_seconds(resolution_seconds);
  Measurement result;
  take_samples({.settings = settings, .prepare = [](int) {}, .stop = {}}, clock, result);
  return result;
}

bool warns(const Measurement& result, const std::string& text) {
  return std::any_of(
      result.warnings.begin(), result.warnings.end(),
      [&](const std::string& warning) { return warning.find(text) != std::string::npos; });
}

}  // namespace

TEST_CASE("of samples too few to know the median half of their range is noise") {
  // Both slots have the median 2.
  CHECK(sampled(settings_of(4), {1, 2, 3, 2}).noise_s == doctest::Approx(1));
  CHECK(sampled(settings_of(4), {1, 4, 1, 4}).noise_s == doctest::Approx(3));  // the gap
}

TEST_CASE("half a core of load beside its own is no other's, more is told") {
  Conditions conditions;
  conditions.load = 1.5;
  CHECK_FALSE(warns(sampled(settings_of(6), {1}, conditions), "busy machine"));
  conditions.load = 1.5625;
  CHECK(warns(sampled(settings_of(6), {1}, conditions), "busy machine: load 1.6 per core"));
}

TEST_CASE("what a clock does not tell of the CPU is no share of others") {
  Conditions conditions;
  CHECK_FALSE(sampled(settings_of(6), {1}, conditions).stolen_share.has_value());
  conditions.cpu = CpuTimes{1, 1, 1};  // the same before and after
  CHECK_FALSE(sampled(settings_of(6), {1}, conditions).stolen_share.has_value());
}

TEST_CASE("a sample of a hundred ticks of the clock is a time, a shorter one is told") {
  CHECK_FALSE(warns(sampled(settings_of(6), {1}, {}, 1.0 / 128), "short: "));
  CHECK_FALSE(warns(sampled(settings_of(6), {100}, {}, 1), "short: "));
  CHECK(warns(sampled(settings_of(6), {99.5}, {}, 1), "short: "));
}

TEST_CASE("what is held against a baseline has its least samples beside as many of that") {
  MeasureSettings settings = settings_of(8);
  settings.max_samples = 100;
  FakeClock clock([](int, std::int64_t) { return 1e-6; });
  for (const int slot : {0, 1}) {
    clock.load(slot, {[](Stream) {}});
  }
  Measurement result;
  take_samples({.settings = settings, .prepare = [](int) {}, .stop = {}, .against_baseline = true},
               clock, result);
  CHECK(result.samples_s.size() == 8);
  CHECK(result.baseline_s.size() == 8);
}
