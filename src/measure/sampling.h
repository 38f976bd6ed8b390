#pragma once

#include <cstdint>
#include <vector>

#include "measure/measure.h"

namespace lora_bench {

// Warms up, samples two slots in turn until the settings say enough, and fills samples, summary,
// noise, clocks, conditions and warnings. Samples at a lowered clock are dropped (see
// ClockWatch). `launches` is in one run of a slot; `prepare` is called with the slot before each
// run, outside of the timed window.
struct Sampling {
  const MeasureSettings& settings;
  std::int64_t launches = 1;
  double own_load = 1;  // load per core that this measurement itself makes
  std::function<void(int slot)> prepare;
  std::function<bool()> stop;  // may be empty
  // The first slot is something else that the time of the second is held against: its samples are
  // kept apart, and dropped with those that were taken after them.
  bool against_baseline = false;
  int first_slot = 0;              // of the two
  ClockReadings highest_mhz = {};  // that earlier samples of the same work have read
};
void take_samples(const Sampling& sampling, Clock& clock, Measurement& into);
// Load per core that a measurement makes itself: launches on a host keep all of its cores busy,
// those on a device none.
[[nodiscard]] constexpr double own_load(Space space) { return space == Space::kHost ? 1 : 0; }

// What a launch adds where something else runs before and after it (docs/measuring.md, "Back to
// back and alone").

// Slots of the clock: separators by themselves, and the same with a launch between any two.
constexpr int kSeparators = 2, kAlone = 3;

void load_alone(Clock& clock, const Launch& separator, const std::vector<Launch>& launches);

// Samples both in turn as `sampling` says, whose `prepare` is called before each run of the
// launches. Fills alone_s and alone_noise_s of `into`, of the samples it has taken before, and
// whether it was interrupted.
void sample_alone(const Sampling& sampling, Clock& clock, Measurement& into);

}  // namespace lora_bench
