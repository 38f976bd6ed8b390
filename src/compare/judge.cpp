#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "compare/compare.h"
#include "compare/interval.h"

namespace lora_bench {
namespace {

double threshold_for(const Row& base, const Row& fresh, const CompareOptions& options) {
  if (options.threshold_given) {
    return options.threshold;
  }
  // What base does not say, new cannot loosen.
  const double before = base.max_regression.value_or(options.threshold);
  return std::min(before, fresh.max_regression.value_or(before));
}

bool usable(const MedianInterval& interval) {
  return std::isfinite(interval.high) && std::isfinite(interval.median) && interval.median > 0;
}

double log_distance(double upper, double lower) {
  return lower > 0 ? std::log(upper / lower) : std::numeric_limits<double>::infinity();
}

double noise_of(const Row& row, double median) {
  const double noise = row.noise_us.value_or(0);
  return std::isfinite(noise) ? noise / median : 0;
}

double length(std::initializer_list<double> parts) {
  double square = 0;
  for (const double part : parts) {
    square += part * part;
  }
  return std::sqrt(square);
}

// Never "0.0 %" for what is not nothing.
std::string percent(double share) {
  return share < 0.001 ? fmt::format("{:.2g} %", share * 100)
                       : fmt::format("{:.1f} %", share * 100);
}

std::string too_few(const Row& row, const char* which) {
  const std::int64_t count = row.samples_us.empty()
                                 ? row.samples.value_or(0)
                                 : static_cast<std::int64_t>(row.samples_us.size());
  return fmt::format(
      "{} has {} samples, {} are needed: raise measure.max_samples or measure.max_time_ms, or run "
      "with --repeat {}",
      which, count, kLeastSamples, count > 0 ? (kLeastSamples + count - 1) / count : kLeastSamples);
}

// What would bring a verdict. A median is known better by the root of the number of its samples;
// what a row differs from itself beyond that (`apart` against `known`) no sample mends.
std::string advice(double half, double limit, double known, double apart) {
  constexpr double kMostTimes = 100;  // more is no advice
  const double share = std::expm1(half);
  const std::string wider =
      share > 1 ? "" : fmt::format(", or --threshold {:.1f}%", std::ceil(share * 1e3) / 10);
  const double times = limit > 0 ? std::ceil((half / limit) * (half / limit)) : kMostTimes + 1;
  if (apart > known) {
    return fmt::format(
        "the same code differs by more than its samples explain: a quieter machine "
        "or locked clocks would tell{}",
        wider);
  }
  return times > kMostTimes
             ? fmt::format("a quieter machine would tell{}", wider)
             : fmt::format(
                   "{:.0f} times the samples (measure.max_samples and measure.max_time_ms, "
                   "or --repeat {:.0f}) would tell{}",
                   times, times, wider);
}

}  // namespace

ComparedRow judge(const Row& base, const Row& fresh, const CompareOptions& options) {
  ComparedRow result;
  result.scenario = fresh.scenario;
  result.case_id = fresh.case_id;
  result.backend = fresh.backend;
  result.base_us = base.time_us;
  result.new_us = fresh.time_us;
  const double threshold = threshold_for(base, fresh, options);
  result.threshold = threshold;
  const double largest =
      std::max(base.max_regression.value_or(0), fresh.max_regression.value_or(0));
  if (!(threshold >= 0) || !(options.threshold_given || largest <= 1)) {
    result.reason =
        fmt::format("max_regression of {} is no threshold", threshold >= 0 ? largest : threshold);
    return result;
  }
  const std::optional<MedianInterval> before = median_interval(base);
  const std::optional<MedianInterval> after = median_interval(fresh);
  if (!before || !after) {
    result.reason = before ? too_few(fresh, "new") : too_few(base, "base");
    return result;
  }
  if (!usable(*before) || !usable(*after)) {
    result.reason = "a time is not a positive number";
    return result;
  }
  const double noise = length({noise_of(base, before->median), noise_of(fresh, after->median)});
  // Distances in logarithms: a ratio of 2 and one of 1/2 are equally far from none.
  const double known_below =
      length({log_distance(after->median, after->low), log_distance(before->high, before->median)});
  const double known_above =
      length({log_distance(after->high, after->median), log_distance(before->median, before->low)});
  const double known = std::max(known_below, known_above);
  const double half = length({known, noise});
  const double change = std::log(after->median / before->median);
  const double limit = std::log1p(threshold);
  // A verdict needs a change beyond the threshold that is also no noise; where the noise is above
  // the threshold, the whole interval has to lie beyond it.
  const double needed = half > limit ? limit + half : limit;
  result.base_us = before->median;
  result.new_us = after->median;
  result.ratio = after->median / before->median;
  result.noise_share = std::expm1(half);
  if (std::abs(change) > needed) {
    result.change = change > 0 ? Change::kSlower : Change::kFaster;
  } else if (half > limit) {
    const std::string hidden =
        threshold == 0 ? "every smaller change" : "a change of " + percent(threshold);
    result.reason = fmt::format("noise of {} hides {}: {}", percent(*result.noise_share), hidden,
                                advice(half, limit, known, noise));
  } else {
    result.change = Change::kSame;
  }
  return result;
}

}  // namespace lora_bench
