#include "measure/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/units.h"

namespace lora_bench {
namespace {

constexpr double kMilliseconds = 1e-3;
constexpr double kForeignLoad = 0.5;       // per core
constexpr double kNoisySpread = 0.05;      // quartiles apart, of the median
constexpr double kTicksOfAGoodRun = 100;   // a run shorter than so many clock ticks is not a time
constexpr std::int64_t kLeastSamples = 2;  // even and odd ones are held against each other
constexpr std::int64_t kSamplesForMedian = 6;  // fewer say nothing about how well it is known
// A case too slow for its least samples within the most time gets so many times the time for them.
constexpr double kTimesOverdrawn = 5;

// Time by the clock; by the runs themselves where a clock stands still between them.
class Elapsed {
 public:
  explicit Elapsed(Clock& clock) : clock_(clock), start_(clock.now_seconds()) {}
  void ran(double seconds) { runs_ += seconds; }
  [[nodiscard]] double seconds() const { return std::max(clock_.now_seconds() - start_, runs_); }

 private:
  Clock& clock_;
  double start_;
  double runs_ = 0;
};

bool asked_to_stop(const Sampling& sampling) { return sampling.stop && sampling.stop(); }

double run_once(const Sampling& sampling, Clock& clock, int slot) {
  sampling.prepare();
  return clock.run_seconds(slot);
}

void warm_up(const Sampling& sampling, Clock& clock) {
  Elapsed elapsed(clock);
  int slot = 0;
  do {
    elapsed.ran(run_once(sampling, clock, slot));
    slot = 1 - slot;
  } while (elapsed.seconds() < sampling.settings.warmup_ms * kMilliseconds &&
           !asked_to_stop(sampling));
}

// The median is known to this share of itself.
double uncertainty(const std::vector<double>& samples) {
  const double median = summarize(samples).median;
  return median > 0 ? median_half_width(samples) / median : 0;
}

void collect(const Sampling& sampling, Clock& clock, Measurement& into) {
  const MeasureSettings& settings = sampling.settings;
  const std::int64_t runs = sampling.against_baseline ? 2 : 1;  // for one sample
  const std::int64_t at_least = kLeastSamples * runs;
  const std::int64_t most = std::max(settings.max_samples * runs, at_least);
  const std::int64_t least = std::max(settings.min_samples, kSamplesForMedian) * runs;
  const double most_seconds = settings.max_time_ms * kMilliseconds;
  Elapsed elapsed(clock);
  for (std::int64_t count = 0; count < most; ++count) {
    if (count >= at_least) {
      if (asked_to_stop(sampling)) {
        into.interrupted = true;
        return;
      }
      const double seconds = elapsed.seconds();
      if (seconds >= (count < least ? kTimesOverdrawn * most_seconds : most_seconds)) {
        break;
      }
      if (count >= settings.min_samples * runs && seconds >= settings.min_time_ms * kMilliseconds &&
          uncertainty(into.samples_s) <= settings.noise_target) {
        return;
      }
    }
    const double seconds = run_once(sampling, clock, static_cast<int>(count % 2));
    elapsed.ran(seconds);
    const bool baseline = sampling.against_baseline && count % 2 == 0;
    (baseline ? into.baseline_s : into.samples_s)
        .push_back(seconds / static_cast<double>(sampling.launches));
  }
  const double known = uncertainty(into.samples_s);
  if (!(known <= settings.noise_target)) {
    into.warnings.push_back(
        std::isfinite(known)
            ? fmt::format("limit reached: median known to {:.1f} %, target {:.1f} %", 100 * known,
                          100 * settings.noise_target)
            : fmt::format("limit reached after {} samples: too few to know the median",
                          into.samples_s.size()));
  }
}

// A against A: the gap between the medians of the two slots, but no less than what the spread of
// the samples lets the median wander, since two medians may meet by luck.
double noise_of(const std::vector<double>& samples) {
  std::vector<double> slots[2];
  for (std::size_t i = 0; i < samples.size(); ++i) {
    slots[i % 2].push_back(samples[i]);
  }
  const double gap = std::fabs(summarize(slots[0]).median - summarize(slots[1]).median);
  const double half_width = median_half_width(samples);
  const Summary summary = summarize(samples);
  return std::max(gap, std::isfinite(half_width) ? half_width : (summary.max - summary.min) / 2);
}

void warn_of_conditions(const Conditions& conditions, std::vector<std::string>& warnings) {
  if (!conditions.throttle.empty()) {
    warnings.push_back("throttled: " + conditions.throttle);
  }
  if (!conditions.governor.empty() && conditions.governor != "performance") {
    warnings.push_back("governor: " + conditions.governor);
  }
}

}  // namespace

void take_samples(const Sampling& sampling, Clock& clock, Measurement& into) {
  warm_up(sampling, clock);
  into.before = clock.conditions();
  collect(sampling, clock, into);
  into.after = clock.conditions();
  into.stolen_share = share_of_others(into.before.cpu, into.after.cpu);
  into.launches = sampling.launches;
  into.summary = summarize(into.samples_s);
  into.noise_s = noise_of(into.samples_s);

  warn_of_conditions(into.before, into.warnings);
  warn_of_conditions(into.after, into.warnings);
  const double load = std::max(into.before.load, into.after.load);
  if (load > sampling.own_load + kForeignLoad) {
    into.warnings.push_back(fmt::format("busy machine: load {:.1f} per core", load));
  }
  const double median = into.summary.median;
  const double spread = median > 0 ? (into.summary.q3 - into.summary.q1) / median : 0;
  if (spread > kNoisySpread) {
    into.warnings.push_back(
        fmt::format("noisy: quartiles {:.0f} % of the median apart", 100 * spread));
  }
  const double run = median * static_cast<double>(sampling.launches);
  if (run < kTicksOfAGoodRun * clock.resolution_seconds()) {
    into.warnings.push_back(fmt::format("short: a sample lasts {}, the clock tells {} apart",
                                        format_seconds(run),
                                        format_seconds(clock.resolution_seconds())));
  }
  // The same before and after is one warning.
  std::vector<std::string> once;
  for (const std::string& warning : into.warnings) {
    if (std::find(once.begin(), once.end(), warning) == once.end()) {
      once.push_back(warning);
    }
  }
  into.warnings = std::move(once);
}

}  // namespace lora_bench
