#include "measure/clock_watch.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "measure/fake_clock.h"
#include "measure/layer_time.h"
#include "measure/sampling.h"
#include "ops/backends.h"
#include "support/near.h"
#include "support/timed_layer.h"

using namespace lora_bench;

namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr double kFull = 2000, kLow = 1500;  // MHz

// A GPU that is at full clock until it has worked for so long without a rest, and whose launches
// take the longer the lower its clock is.
struct HotGpu {
  double work_s;                  // after which the clock falls
  double rest_s;                  // that brings it back
  double highest_mhz = kUnknown;  // read before the samples
  bool baseline = false;          // sample slot 0 against slot 1
  std::function<bool()> stop = {};

  double worked_s = 0, rested_s = 0;
  FakeClock clock{[this](int slot, std::int64_t) {
    const double rest = clock.rested_seconds();
    if (rest - rested_s >= rest_s) {
      worked_s = 0;
    }
    rested_s = rest;
    const double seconds = (slot == 0 && baseline ? 1e-3 : 2e-3) * kFull / mhz();
    worked_s += seconds;
    return seconds;
  }};

  [[nodiscard]] double mhz() const { return worked_s < work_s ? kFull : kLow; }

  Measurement sampled(std::int64_t samples = 12, double warmup_ms = 20) {
    MeasureSettings settings;
    settings.warmup_ms = warmup_ms;
    settings.min_time_ms = 0;
    settings.min_samples = settings.max_samples = samples;
    for (const int slot : {0, 1}) {
      clock.load(slot, {[](Stream) {}});
    }
    clock.set_sm_clock([this] { return mhz(); });
    Measurement result;
    take_samples({.settings = settings,
                  .prepare = [](int) {},
                  .stop = stop,
                  .against_baseline = baseline,
                  .highest_mhz = {highest_mhz}},
                 clock, result);
    return result;
  }
};

bool warns(const Measurement& result, const std::string& text) {
  return std::any_of(
      result.warnings.begin(), result.warnings.end(),
      [&](const std::string& warning) { return warning.find(text) != std::string::npos; });
}

bool all_near(const std::vector<double>& samples, double seconds) {
  return std::all_of(samples.begin(), samples.end(),
                     [&](double sample) { return sample == near(seconds); });
}

}  // namespace

TEST_CASE("a sample counts down to 97 % of the highest clock that was read") {
  ClockWatch watch;
  watch.saw({1980});
  CHECK(watch.keeps({1921}, 1e-3));
  CHECK_FALSE(watch.keeps({1920}, 1e-3));
  CHECK(watch.keeps({1980}, 1e-3));
  CHECK(watch.dropped() == 1);
  CHECK(watch.medians().timed == 1950.5);
}

TEST_CASE("what is timed and what it is timed against are each held against their own clock") {
  ClockWatch watch;
  watch.saw({.timed = 1600});
  watch.saw({.baseline = 1900});
  CHECK(watch.keeps({1590, 1890}, 1e-3));
  CHECK_FALSE(watch.keeps({1540, 1900}, 1e-3));
  CHECK_FALSE(watch.keeps({1600, 1800}, 1e-3));
  CHECK(watch.medians().timed == 1590);
  CHECK(watch.medians().baseline == 1890);
  CHECK_FALSE(watch.outdated());
  watch.saw({.baseline = 1960});
  CHECK(watch.outdated());
}

TEST_CASE("the mean clock between two marks is that of the multiprocessors that have both") {
  using Places = std::vector<std::int64_t>;
  const auto mhz = [](const Places& clocks, const Places& ns, const Places& later_clocks,
                      const Places& later_ns) {
    return mean_mhz({clocks, ns}, {later_clocks, later_ns});
  };
  CHECK(mhz({1000, 0, 5000}, {10, 20, 30}, {1'601'000, 1'400'000, 1'805'000},
            {1'000'010, 1'000'020, 1'000'030}) == near(1600));
  // A place that was not marked twice says nothing.
  CHECK(mhz({1000, 0, 0}, {10, 0, 30}, {1'801'000, 7, 1'600'000}, {1'000'010, 1'000'000, 0}) ==
        near(1800));
  CHECK(std::isnan(mhz({0}, {0}, {0}, {0})));
  CHECK(std::isnan(mhz({}, {}, {}, {})));
  CHECK(std::isnan(mhz({1}, {1}, {100'001}, {100'001})));  // too close together
}

TEST_CASE("rests double while samples are dropped, and end as long as a sample when one is kept") {
  ClockWatch watch({2000});
  CHECK(watch.rest_seconds() == 0);
  std::vector<double> rests;
  for (int dropped = 0; dropped < 7; ++dropped) {
    static_cast<void>(watch.keeps({kLow}, 5e-3));
    rests.push_back(watch.rest_seconds());
  }
  CHECK(rests == std::vector<double>{5e-3, 10e-3, 20e-3, 40e-3, 80e-3, 160e-3, 200e-3});
  for (int kept = 0; kept < 7; ++kept) {
    static_cast<void>(watch.keeps({kFull}, 5e-3));
  }
  CHECK(watch.rest_seconds() == 5e-3);
  ClockWatch brief({2000});  // a rest shorter than 2 ms brings nothing back
  static_cast<void>(brief.keeps({kLow}, 1e-4));
  CHECK(brief.rest_seconds() == 2e-3);
}

TEST_CASE("where no clock is read every sample is kept, nothing rests, and no clock is told") {
  ClockWatch watch({2000});
  for (int sample = 0; sample < 5; ++sample) {
    CHECK(watch.keeps({kUnknown}, 1));
  }
  CHECK(watch.rest_seconds() == 0);
  CHECK(watch.dropped() == 0);
  CHECK_FALSE(watch.is_out_of_time());
  CHECK(std::isnan(watch.medians().timed));

  FakeClock clock([](int, std::int64_t) { return 1e-3; });
  for (const int slot : {0, 1}) {
    clock.load(slot, {[](Stream) {}});
  }
  const MeasureSettings settings = six_samples();
  Measurement result;
  take_samples({.settings = settings, .prepare = [](int) {}, .stop = {}, .highest_mhz = {2000}},
               clock, result);
  CHECK(result.samples_s.size() == 6);
  CHECK(result.samples_dropped == 0);
  CHECK(clock.rested_seconds() == 0);
  CHECK(std::isnan(result.clock_mhz));
}

TEST_CASE("samples at a lowered clock are dropped and the GPU rests until it is back") {
  HotGpu gpu{.work_s = 30e-3, .rest_s = 8e-3};
  const Measurement result = gpu.sampled();
  CHECK(result.samples_s.size() == 12);
  CHECK(all_near(result.samples_s, 2e-3));
  CHECK(result.samples_dropped > 0);
  CHECK(result.samples_dropped < 12);
  CHECK(result.clock_mhz == kFull);
  CHECK(result.highest_mhz.timed == kFull);
  CHECK(gpu.clock.rested_seconds() > 8e-3);
  CHECK(gpu.clock.rested_seconds() < 0.2);
  CHECK_FALSE(warns(result, "low clock"));
}

TEST_CASE("a GPU that never gets hot loses no sample and never rests") {
  HotGpu gpu{.work_s = 1e9, .rest_s = 1};
  const Measurement result = gpu.sampled();
  CHECK(result.samples_dropped == 0);
  CHECK(gpu.clock.rested_seconds() == 0);
  CHECK(result.clock_mhz == kFull);
}

TEST_CASE("a base is dropped with its layer where either was taken at a lowered clock") {
  HotGpu gpu{.work_s = 23e-3, .rest_s = 8e-3, .baseline = true};
  const Measurement result = gpu.sampled();
  CHECK(result.samples_s.size() == 12);
  CHECK(result.baseline_s.size() == 12);
  CHECK(all_near(result.samples_s, 2e-3));
  CHECK(all_near(result.baseline_s, 1e-3));
  CHECK(result.samples_dropped > 0);
}

TEST_CASE("a clock that does not come back ends the rests, is taken as it is, and told") {
  HotGpu gpu{.work_s = 2.5e-3, .rest_s = 1e9};
  const Measurement result = gpu.sampled(12, 0);
  CHECK(result.samples_s.size() == 12);
  CHECK(all_near(result.samples_s, 2e-3 * kFull / kLow));
  CHECK(result.clock_mhz == kLow);
  CHECK(result.highest_mhz.timed == kLow);  // what follows is held against this
  CHECK(warns(result, "low clock: 1500 MHz, 2000 MHz were read before"));
  CHECK(gpu.clock.rested_seconds() <= ClockWatch::kMostLostSeconds + 0.2);
  CHECK(result.samples_dropped > 5);
  CHECK(result.samples_dropped < 100);
}

TEST_CASE("of samples at two clocks those at the higher one are kept, if they are six") {
  // Of eight samples the clock falls for good.
  HotGpu gpu{.work_s = 19.9e-3, .rest_s = 1e9};
  const Measurement result = gpu.sampled(12, 0);
  CHECK(result.samples_s.size() == 8);
  CHECK(all_near(result.samples_s, 2e-3));
  CHECK(result.clock_mhz == kFull);
  CHECK_FALSE(warns(result, "low clock"));
  CHECK(gpu.clock.rested_seconds() <= ClockWatch::kMostLostSeconds + 0.2);
}

TEST_CASE("what was read before tells a GPU that is hot from the start") {
  HotGpu cold{.work_s = 0, .rest_s = 15e-3};
  CHECK(all_near(cold.sampled().samples_s, 2e-3 * kFull / kLow));  // nothing says that it is low
  HotGpu hot{.work_s = 3e-3, .rest_s = 1.9e-3, .highest_mhz = kFull, .worked_s = 1};
  const Measurement result = hot.sampled();
  CHECK(result.samples_dropped == 1);
  CHECK(all_near(result.samples_s, 2e-3));
}

TEST_CASE("samples that were kept before a higher clock was read are dropped") {
  std::int64_t runs = 0, readings = 0;  // one of each comes before the samples
  FakeClock clock([&](int, std::int64_t) { return ++runs <= 4 ? 2e-3 : 1e-3; });
  for (const int slot : {0, 1}) {
    clock.load(slot, {[](Stream) {}});
  }
  clock.set_sm_clock([&] { return ++readings <= 4 ? kLow : kFull; });
  const MeasureSettings settings = six_samples();
  Measurement result;
  take_samples({.settings = settings, .prepare = [](int) {}, .stop = {}}, clock, result);
  CHECK(result.samples_s.size() == 6);
  CHECK(all_near(result.samples_s, 1e-3));
  CHECK(result.clock_mhz == kFull);
  CHECK(result.samples_dropped == 4);
}

TEST_CASE("a stop ends the rests as well") {
  HotGpu gpu{.work_s = 2e-3, .rest_s = 1e9};
  gpu.stop = [] { return true; };
  const Measurement result = gpu.sampled(12, 0);
  CHECK(result.interrupted);
  CHECK(result.samples_s.size() == 2);
  CHECK(gpu.clock.rested_seconds() == 0);
}

TEST_CASE("rests and dropped samples take nothing from the time that a case may take") {
  HotGpu gpu{.work_s = 5e-3, .rest_s = 4e-3};
  MeasureSettings settings = six_samples();
  settings.max_samples = 40;
  settings.max_time_ms = 30;  // fifteen samples of 2 ms
  settings.noise_target = -1;
  for (const int slot : {0, 1}) {
    gpu.clock.load(slot, {[](Stream) {}});
  }
  gpu.clock.set_sm_clock([&] { return gpu.mhz(); });
  Measurement result;
  take_samples({.settings = settings, .prepare = [](int) {}, .stop = {}}, gpu.clock, result);
  CHECK(result.samples_s.size() >= 15);
  CHECK(result.samples_s.size() <= 16);
  CHECK(gpu.clock.rested_seconds() > 30e-3);
}

TEST_CASE("the base and the whole of a layer are sampled at one clock") {
  HotGpu gpu{.work_s = 40e-3, .rest_s = 8e-3, .baseline = true};
  gpu.clock.set_sm_clock([&] { return gpu.mhz(); });
  LayerTensors tensors = draw_layer_tensors(row_layer(1, false), Fill::kBounded, 1);
  MeasureSettings settings = six_samples();
  settings.cache = CacheMode::kHot;  // one launch a sample
  for (const bool together : {false, true}) {
    CAPTURE(together);
    gpu.worked_s = 34e-3;  // nearly hot
    const LayerMeasurement result = timed_layer(row_layer(1, false), tensors, gpu.clock,
                                                *make_cpu_backend({1, ""}), settings, together);
    CHECK(result.layer.samples_s.size() == 6);
    CHECK(all_near(result.layer.samples_s, 2e-3));
    CHECK(all_near(result.layer.baseline_s, 1e-3));
    CHECK(result.tax_s == near(1e-3));
    CHECK(result.layer.clock_mhz == kFull);
    CHECK(result.layer.samples_dropped > 0);
  }
}
