#pragma once

#include <span>

namespace lora_bench {

// Quartiles by linear interpolation between order statistics (type 7).
struct Summary {
  double min = 0, q1 = 0, median = 0, q3 = 0, max = 0;
};
[[nodiscard]] Summary summarize(std::span<const double> samples);

// Half-width of the 95 % interval of the median from order statistics (binomial), as a value in
// the samples' unit. 0 for a single sample is not claimed: needs at least 6, else infinity.
[[nodiscard]] double median_half_width(std::span<const double> samples);

// The median of what each sample took longer than the one of the baseline before it, and half of
// its 95 % interval; with fewer than six pairs half of their range.
struct Known {
  double value = 0, half_width = 0;
};
[[nodiscard]] Known median_difference(std::span<const double> samples,
                                      std::span<const double> baseline);

}  // namespace lora_bench
