#include "measure/sampling.h"

#include <algorithm>
#include <utility>

namespace lora_bench {
namespace {

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
                .first_slot = kSeparators,
                .highest_mhz = into.highest_mhz},
               clock, pairs);
  into.interrupted = pairs.interrupted;
  const Known added = median_difference(pairs.samples_s, pairs.baseline_s);
  if (!pairs.interrupted && added.value > added.half_width) {
    into.alone_s = added.value;
    into.alone_noise_s = added.half_width;
  }
}

}  // namespace lora_bench
