#pragma once

#include <cstdint>

#include "measure/measure.h"

namespace lora_bench {

// Warms up, samples slots 0 and 1 in turn until the settings say enough, and fills samples,
// summary, noise, conditions and warnings. `launches` is in one run of a slot; `prepare` is called
// before each run, outside of the timed window.
struct Sampling {
  const MeasureSettings& settings;
  std::int64_t launches = 1;
  double own_load = 1;  // load per core that this measurement itself makes
  std::function<void()> prepare;
  std::function<bool()> stop;  // may be empty
  // Slot 0 is something else that the time of slot 1 is held against: its samples are kept apart.
  bool against_baseline = false;
};
void take_samples(const Sampling& sampling, Clock& clock, Measurement& into);

}  // namespace lora_bench
