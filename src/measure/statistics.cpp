#include "measure/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

namespace lora_bench {
namespace {

double quantile(const std::vector<double>& sorted, double share) {
  const double position = share * static_cast<double>(sorted.size() - 1);
  const double below = std::floor(position);
  const auto index = static_cast<std::size_t>(below);
  const std::size_t next = std::min(index + 1, sorted.size() - 1);
  return sorted[index] + (position - below) * (sorted[next] - sorted[index]);
}

std::vector<double> sorted_copy(std::span<const double> samples) {
  if (samples.empty()) {
    throw std::invalid_argument("statistics of no samples");
  }
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

// The rank (from 1) of the lower end of the narrowest symmetric interval of order statistics that
// holds the median with 95 %; 0 when even [min, max] does not.
std::size_t lower_rank(std::size_t count) {
  const auto n = static_cast<double>(count);
  double below = 0;  // P(Binomial(n, 1/2) < rank)
  std::size_t rank = 0;
  while (2 * (rank + 1) <= count) {
    const auto k = static_cast<double>(rank);
    below += std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) -
                      n * std::log(2.0));
    if (below > 0.025) {
      break;
    }
    ++rank;
  }
  return rank;
}

}  // namespace

Summary summarize(std::span<const double> samples) {
  const std::vector<double> sorted = sorted_copy(samples);
  return {sorted.front(), quantile(sorted, 0.25), quantile(sorted, 0.5), quantile(sorted, 0.75),
          sorted.back()};
}

double median_half_width(std::span<const double> samples) {
  const std::vector<double> sorted = sorted_copy(samples);
  const std::size_t rank = lower_rank(sorted.size());
  if (rank == 0) {
    return std::numeric_limits<double>::infinity();
  }
  return (sorted[sorted.size() - rank] - sorted[rank - 1]) / 2;
}

Known median_difference(std::span<const double> samples, std::span<const double> baseline) {
  std::vector<double> differences;
  for (std::size_t i = 0; i < std::min(samples.size(), baseline.size()); ++i) {
    differences.push_back(samples[i] - baseline[i]);
  }
  const Summary summary = summarize(differences);
  const double half_width = median_half_width(differences);
  return {summary.median, std::isfinite(half_width) ? half_width : (summary.max - summary.min) / 2};
}

}  // namespace lora_bench
