#include "measure/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "core/units.h"
#include "measure/clock_watch.h"

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

// Time by the clock; by the runs themselves where a clock stands still between them. Rests and
// dropped samples do not count.
class Elapsed {
 public:
  explicit Elapsed(Clock& clock) : clock_(clock), start_(clock.now_seconds()) {}
  void ran(double seconds) { runs_ += seconds; }
  void lost(double seconds) { start_ += seconds; }
  [[nodiscard]] double seconds() const { return std::max(clock_.now_seconds() - start_, runs_); }

 private:
  Clock& clock_;
  double start_;
  double runs_ = 0;
};

bool asked_to_stop(const Sampling& sampling) { return sampling.stop && sampling.stop(); }

double run_once(const Sampling& sampling, Clock& clock, int slot) {
  sampling.prepare(sampling.first_slot + slot);
  return clock.run_seconds(sampling.first_slot + slot);
}

void warm_up(const Sampling& sampling, Clock& clock, ClockWatch& watch) {
  Elapsed elapsed(clock);
  int slot = 0;
  do {
    elapsed.ran(run_once(sampling, clock, slot));
    ClockReadings read;
    (sampling.against_baseline && slot == 0 ? read.baseline : read.timed) = clock.sm_clock_mhz();
    watch.saw(read);
    slot = 1 - slot;
  } while (elapsed.seconds() < sampling.settings.warmup_ms * kMilliseconds &&
           !asked_to_stop(sampling));
}

// The median is known to this share of itself.
double uncertainty(const std::vector<double>& samples) {
  const double median = summarize(samples).median;
  return median > 0 ? median_half_width(samples) / median : 0;
}

// Takes samples, one by one or each after one of the baseline.
class Collector {
 public:
  Collector(const Sampling& sampling, Clock& clock, ClockWatch& watch, Measurement& into)
      : sampling_(sampling), clock_(clock), watch_(watch), into_(into), elapsed_(clock) {}

  void run() {
    const std::int64_t most = std::max(sampling_.settings.max_samples, kLeastSamples);
    while (kept() < most && !is_enough()) {
      rest();
      if (watch_.is_out_of_time()) {
        if (kept() >= kSamplesForMedian) {
          break;
        }
        drop_kept();
        watch_.give_up();
      }
      take();
    }
    warn_of_limit();
    warn_of_clock();
  }

 private:
  [[nodiscard]] std::int64_t kept() const { return std::ssize(into_.samples_s); }

  // Because of what was asked for, or of the time that it took.
  bool is_enough() {
    const MeasureSettings& settings = sampling_.settings;
    if (kept() < kLeastSamples) {
      return false;
    }
    if (asked_to_stop(sampling_)) {
      into_.interrupted = true;
      return true;
    }
    const double most_seconds = settings.max_time_ms * kMilliseconds;
    const std::int64_t least = std::max(settings.min_samples, kSamplesForMedian);
    const double seconds = elapsed_.seconds();
    return seconds >= (kept() < least ? kTimesOverdrawn * most_seconds : most_seconds) ||
           (kept() >= settings.min_samples && seconds >= settings.min_time_ms * kMilliseconds &&
            uncertainty(into_.samples_s) <= settings.noise_target);
  }

  void rest() {
    const double seconds = watch_.rest_seconds();
    if (!(seconds > 0)) {
      return;
    }
    if (asked_to_stop(sampling_)) {
      watch_.give_up();
      return;
    }
    const double before = clock_.now_seconds();
    clock_.rest(seconds);
    elapsed_.lost(clock_.now_seconds() - before);
    watch_.rested(seconds);
  }

  void take() {
    const double before = clock_.now_seconds();
    ClockReadings read;
    const auto sample = [&](int slot, double& mhz) {
      const double seconds = run_once(sampling_, clock_, slot);
      mhz = clock_.sm_clock_mhz();
      return seconds;
    };
    const bool paired = sampling_.against_baseline;
    const double baseline = paired ? sample(0, read.baseline) : 0;
    const double seconds = sample(paired ? 1 : static_cast<int>(kept() % 2), read.timed);
    if (!watch_.keeps(read, baseline + seconds)) {
      elapsed_.lost(clock_.now_seconds() - before);
      return;
    }
    if (watch_.outdated()) {
      drop_kept();
      return;
    }
    elapsed_.ran(baseline + seconds);
    const auto launches = static_cast<double>(sampling_.launches);
    if (sampling_.against_baseline) {
      into_.baseline_s.push_back(baseline / launches);
    }
    into_.samples_s.push_back(seconds / launches);
  }

  void drop_kept() {
    watch_.drop_kept();
    into_.samples_s.clear();
    into_.baseline_s.clear();
  }

  void warn_of_limit() {
    const double target = sampling_.settings.noise_target;
    const double known = uncertainty(into_.samples_s);
    if (into_.interrupted || known <= target) {
      return;
    }
    into_.warnings.push_back(
        std::isfinite(known)
            ? fmt::format("limit reached: median known to {:.1f} %, target {:.1f} %", 100 * known,
                          100 * target)
            : fmt::format("limit reached after {} samples: too few to know the median", kept()));
  }

  void warn_of_clock() {
    if (!watch_.has_given_up() || into_.interrupted) {
      return;
    }
    const ClockReadings kept = watch_.medians();
    const ClockReadings& highest = watch_.highest();
    const bool of_baseline = kept.baseline / highest.baseline < kept.timed / highest.timed;
    into_.warnings.push_back(fmt::format(
        "low clock: {:.0f} MHz, {:.0f} MHz were read before and did not come back in {:.1f} s",
        of_baseline ? kept.baseline : kept.timed, of_baseline ? highest.baseline : highest.timed,
        watch_.lost_seconds()));
  }

  const Sampling& sampling_;
  Clock& clock_;
  ClockWatch& watch_;
  Measurement& into_;
  Elapsed elapsed_;
};

// A against A: the gap between the medians of the two slots, but no less than what the spread of
// the samples lets the median wander, since two medians may meet by luck. Where both are 0, as of
// samples that are ticks of the clock apart or none, half a tick is not known.
double noise_of(const std::vector<double>& samples, double half_tick) {
  std::vector<double> slots[2];
  for (std::size_t i = 0; i < samples.size(); ++i) {
    slots[i % 2].push_back(samples[i]);
  }
  const double gap = std::fabs(summarize(slots[0]).median - summarize(slots[1]).median);
  const double half_width = median_half_width(samples);
  const Summary summary = summarize(samples);
  const double noise =
      std::max(gap, std::isfinite(half_width) ? half_width : (summary.max - summary.min) / 2);
  return noise > 0 ? noise : std::min(half_tick, summary.q3 - summary.q1);
}

void warn_of_conditions(const Conditions& conditions, std::vector<std::string>& warnings) {
  if (!conditions.throttle.empty()) {
    warnings.push_back("throttled: " + conditions.throttle);
  }
  if (!conditions.governor.empty() && conditions.governor != "performance") {
    warnings.push_back("governor: " + conditions.governor);
  }
}

constexpr std::int64_t kPairs = 11;
constexpr double kMostWarmupMs = 20;  // the samples before have warmed up
constexpr double kShareOfTime = 0.25;

// As many steps with the launches as without, so that where a stream is timed piece by piece the
// pieces are the same.
std::vector<Launch> separated(const Launch& separator, const std::vector<Launch>& launches) {
  std::vector<Launch> sequence{separator};
  for (const Launch& launch : launches) {
    sequence.push_back(launch);
    sequence.push_back(separator);
  }
  return sequence;
}

MeasureSettings brief(MeasureSettings settings) {
  settings.warmup_ms = std::min(settings.warmup_ms, kMostWarmupMs);
  settings.min_samples = settings.max_samples = kPairs;
  settings.min_time_ms = 0;
  settings.max_time_ms *= kShareOfTime;
  return settings;
}

}  // namespace

void take_samples(const Sampling& sampling, Clock& clock, Measurement& into) {
  ClockWatch watch(sampling.highest_mhz);
  warm_up(sampling, clock, watch);
  into.before = clock.conditions();
  Collector(sampling, clock, watch, into).run();
  into.after = clock.conditions();
  into.clock_mhz = watch.medians().timed;
  into.samples_dropped = watch.dropped();
  into.highest_mhz = watch.has_given_up() ? watch.medians() : watch.highest();
  into.stolen_share = share_of_others(into.before.cpu, into.after.cpu);
  into.launches = sampling.launches;
  into.summary = summarize(into.samples_s);
  into.noise_s = noise_of(into.samples_s,
                          clock.resolution_seconds() / 2 / static_cast<double>(sampling.launches));

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

void load_alone(Clock& clock, const Launch& separator, const std::vector<Launch>& launches) {
  const Launch nothing = [](Stream) {};
  clock.load(kSeparators, separated(separator, std::vector<Launch>(launches.size(), nothing)));
  clock.load(kAlone, separated(separator, launches));
}

void sample_alone(const Sampling& sampling, Clock& clock, Measurement& into) {
  const MeasureSettings settings = brief(sampling.settings);
  const auto prepare = [&](int slot) {
    if (slot == kAlone) {
      sampling.prepare(slot);
    }
  };
  Measurement pairs;
  take_samples({.settings = settings,
                .launches = sampling.launches,
                .own_load = sampling.own_load,
                .prepare = prepare,
                .stop = sampling.stop,
                .against_baseline = true,
                .first_slot = kSeparators},
               clock, pairs);
  into.interrupted = pairs.interrupted;
  const Known added = median_difference(pairs.samples_s, pairs.baseline_s);
  if (!pairs.interrupted && added.value > added.half_width) {
    into.alone_s = added.value;
    into.alone_noise_s = added.half_width;
  }
}

}  // namespace lora_bench
