#pragma once

#include "measure/measure.h"

namespace lora_bench::test {

// Ten samples or more, of a clock that ticks as it is told.
inline MeasureSettings short_measure(CacheMode cache = CacheMode::kWeightsCold) {
  MeasureSettings settings;
  settings.cache = cache;
  settings.warmup_ms = 1;
  settings.min_samples = 10;
  settings.max_samples = 40;
  settings.min_time_ms = 1;
  settings.max_time_ms = 1e6;
  return settings;
}

}  // namespace lora_bench::test
