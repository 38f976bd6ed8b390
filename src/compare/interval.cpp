#include "compare/interval.h"

#include <algorithm>
#include <cmath>

namespace lora_bench {
namespace {

constexpr double kOutside = 0.01;      // 1 - 99 %
constexpr double kNormalHalf = 2.576;  // 99 % of a normal law

// Largest k such that [k-th smallest, k-th largest] holds the median in 99 % of draws: as many
// samples lie below the median as heads fall in n throws.
std::size_t outermost_rank(std::size_t n) {
  const double count = static_cast<double>(n);
  if (n > 1000) {
    return static_cast<std::size_t>(count / 2 - kNormalHalf * std::sqrt(count) / 2);
  }
  double chance = std::pow(0.5, count);
  double below = chance;
  std::size_t rank = 0;
  while (2 * below <= kOutside) {
    ++rank;
    chance *= (count - static_cast<double>(rank) + 1) / static_cast<double>(rank);
    below += chance;
  }
  return rank;
}

MedianInterval from_samples(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const std::size_t n = samples.size();
  const std::size_t rank = outermost_rank(n);
  const double median = (samples[(n - 1) / 2] + samples[n / 2]) / 2;
  return {median, samples[rank - 1], samples[n - rank]};
}

std::optional<MedianInterval> from_quartiles(const Row& row) {
  if (!row.time_us || !row.time_q1_us || !row.time_q3_us || !row.samples ||
      *row.samples < kLeastSamples) {
    return std::nullopt;
  }
  constexpr double kQuartilesPerDeviation = 1.349;
  constexpr double kMedianPerMean = 1.2533;
  const double deviation = (*row.time_q3_us - *row.time_q1_us) / kQuartilesPerDeviation;
  const double half =
      kNormalHalf * kMedianPerMean * deviation / std::sqrt(static_cast<double>(*row.samples));
  return MedianInterval{*row.time_us, *row.time_us - half, *row.time_us + half};
}

}  // namespace

std::optional<MedianInterval> median_interval(const Row& row) {
  if (row.samples_us.empty()) {
    return from_quartiles(row);
  }
  if (static_cast<std::int64_t>(row.samples_us.size()) < kLeastSamples) {
    return std::nullopt;
  }
  return from_samples(row.samples_us);
}

}  // namespace lora_bench
