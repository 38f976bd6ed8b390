#pragma once

#include <optional>

#include "report/row.h"

namespace lora_bench {

// A median with its 99 % interval, in us.
struct MedianInterval {
  double median = 0, low = 0, high = 0;
};

// Fewer samples cannot bracket their median at 99 %.
constexpr std::int64_t kLeastSamples = 8;

// From order statistics of samples_us (no law of the noise is assumed); for a row stored without
// samples from its quartiles, as if they were normal. Nothing when there are too few.
[[nodiscard]] std::optional<MedianInterval> median_interval(const Row& row);

}  // namespace lora_bench
