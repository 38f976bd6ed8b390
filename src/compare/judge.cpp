#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "compare/compare.h"

namespace lora_bench {
namespace {

// Of comparisons of the same code that end with a row called SLOWER, and as many with one called
// FASTER, whatever the number of rows.
constexpr double kFalseAlarms = 0.01;
// Of rows that are slower by the threshold and are called SAME.
constexpr double kMissed = 0.05;

double threshold_for(const Row& base, const Row& fresh, const CompareOptions& options) {
  if (options.threshold_given) {
    return options.threshold;
  }
  // What base does not say, new cannot loosen.
  const double before = base.limits.max_regression.value_or(options.threshold);
  return std::min(before, fresh.limits.max_regression.value_or(before));
}

bool usable(const std::vector<double>& times) {
  return std::all_of(times.begin(), times.end(),
                     [](double time) { return std::isfinite(time) && time > 0; });
}

// In logarithms, as all distances here: a ratio of 2 and one of 1/2 are equally far from none.
double apart(const std::vector<double>& times) {
  const auto [least, most] = std::minmax_element(times.begin(), times.end());
  return std::log(*most / *least);
}

// By how much a fixed piece of work took longer or shorter in one of the runs.
double machine_moved(const Repeats& base, const Repeats& fresh) {
  if (base.yardsticks_us.empty() || fresh.yardsticks_us.empty()) {
    return 0;
  }
  return std::abs(std::log(median_of(fresh.yardsticks_us) / median_of(base.yardsticks_us)));
}

// Never "0.0 %" for what is not nothing.
std::string percent(double share) {
  return share < 0.001 ? fmt::format("{:.2g} %", share * 100)
                       : fmt::format("{:.1f} %", share * 100);
}

// "new has 4 repeats, and 6 that were disturbed (throttled: sw_power_cap)"
std::string what_is_left(const std::string& run, const Repeats& repeats) {
  const std::string why = fmt::format("disturbed ({})", repeats.disturbance);
  const std::size_t left = repeats.times_us.size();
  if (left == 0 && repeats.disturbed > 0) {
    return repeats.disturbed == 1
               ? fmt::format("the one repeat of {} was {}", run, why)
               : fmt::format("all {} repeats of {} were {}", repeats.disturbed, run, why);
  }
  const std::string text = fmt::format("{} has {} repeat{}", run, left, left == 1 ? "" : "s");
  return repeats.disturbed == 0 ? text
                                : fmt::format("{}, and {} that {} {}", text, repeats.disturbed,
                                              repeats.disturbed == 1 ? "was" : "were", why);
}

std::string too_few(const Repeats& base, const Repeats& fresh, std::int64_t rows) {
  const std::int64_t needed = least_repeats(kFalseAlarms / static_cast<double>(rows));
  const bool disturbed = base.disturbed + fresh.disturbed > 0;
  const std::string there_are =
      disturbed ? fmt::format("{}; {}", what_is_left("base", base), what_is_left("new", fresh))
                : fmt::format("{}, new {}", what_is_left("base", base), fresh.times_us.size());
  return fmt::format("{}; {} of each are needed to judge {} row{}: {}", there_are, needed, rows,
                     rows == 1 ? "" : "s",
                     disturbed ? "a quieter machine would tell, or a larger --repeat"
                               : fmt::format("run both with --repeat {}", needed));
}

// What stands between a change and a verdict, in logarithms.
struct Noise {
  double of_repeats = 0;  // half the interval of the shift
  double of_runs = 0;     // the repeats of one run are so far apart
  double of_machine = 0;  // the machine itself moved between the runs
  [[nodiscard]] double sum() const { return of_repeats + of_runs + of_machine; }
};

std::string advice(const Noise& noise, double least_threshold) {
  const std::string wider =
      least_threshold > 1 ? "" : fmt::format(", or --threshold {:.1f}%", least_threshold * 100);
  if (noise.of_machine > std::max(noise.of_runs, noise.of_repeats)) {
    return fmt::format(
        "the machine itself was {} faster or slower in one run (yardstick_us): run base and new in "
        "turn, or locked clocks{} would tell",
        percent(std::expm1(noise.of_machine)), wider);
  }
  return fmt::format("more repeats or a quieter machine would tell{}", wider);
}

}  // namespace

ComparedRow judge(const Repeats& base, const Repeats& fresh, const CompareOptions& options,
                  std::int64_t rows) {
  ComparedRow result;
  result.scenario = fresh.row.id.scenario;
  result.case_id = fresh.row.id.case_id;
  result.backend = fresh.row.id.backend;
  result.base_us = base.row.time.us;
  result.new_us = fresh.row.time.us;
  const double threshold = threshold_for(base.row, fresh.row, options);
  result.threshold = threshold;
  const double largest = std::max(base.row.limits.max_regression.value_or(0),
                                  fresh.row.limits.max_regression.value_or(0));
  if (!(threshold >= 0) || !(options.threshold_given || largest <= 1)) {
    result.reason =
        fmt::format("max_regression of {} is no threshold", threshold >= 0 ? largest : threshold);
    return result;
  }
  if (!usable(base.times_us) || !usable(fresh.times_us)) {
    result.reason = "a time is not a positive number";
    return result;
  }
  const double level = kFalseAlarms / static_cast<double>(std::max<std::int64_t>(rows, 1));
  if (rank_of_end(std::ssize(base.times_us), std::ssize(fresh.times_us), level) == 0) {
    result.reason = too_few(base, fresh, std::max<std::int64_t>(rows, 1));
    return result;
  }
  const Shift shift = shift_of(base.times_us, fresh.times_us, level);
  const Noise noise{(shift.high - shift.low) / 2,
                    std::max(apart(base.times_us), apart(fresh.times_us)),
                    machine_moved(base, fresh)};
  const double limit = std::log1p(threshold);
  result.ratio = std::exp(shift.median);
  result.noise_share = std::expm1(noise.sum());
  const double beyond = limit + noise.of_runs + noise.of_machine;
  const double at_most = shift_of(base.times_us, fresh.times_us, kMissed).high + noise.of_machine;
  if (shift.low > beyond) {
    result.change = Change::kSlower;
  } else if (shift.high < -beyond) {
    result.change = Change::kFaster;
  } else if (at_most <= limit) {
    result.change = Change::kSame;
  } else {
    result.least_threshold = std::ceil(std::expm1(at_most) * 1e3) / 1e3;
    const std::string hidden =
        threshold == 0 ? "every smaller change" : "a change of " + percent(threshold);
    result.reason = fmt::format("noise of {} hides {}: {}", percent(*result.noise_share), hidden,
                                advice(noise, *result.least_threshold));
  }
  return result;
}

}  // namespace lora_bench
