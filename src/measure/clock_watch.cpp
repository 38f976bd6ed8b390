#include "measure/clock_watch.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "measure/statistics.h"

namespace lora_bench {

double mean_mhz(const ClockMarks& before, const ClockMarks& after) {
  constexpr std::int64_t kLeastNs = 150'000;  // the timer may go on by 1 us at a time
  std::vector<double> mhz;
  for (std::size_t i = 0; i < before.ns.size(); ++i) {
    const std::int64_t ns = after.ns[i] - before.ns[i];
    if (before.ns[i] > 0 && after.ns[i] > 0 && ns >= kLeastNs) {
      mhz.push_back(1e3 * static_cast<double>(after.clocks[i] - before.clocks[i]) /
                    static_cast<double>(ns));
    }
  }
  return mhz.empty() ? std::numeric_limits<double>::quiet_NaN() : summarize(mhz).median;
}

void ClockWatch::saw(const ClockReadings& read) {
  highest_.timed = std::fmax(highest_.timed, read.timed);  // of NaN and a number the number
  highest_.baseline = std::fmax(highest_.baseline, read.baseline);
}

bool ClockWatch::is_low(const ClockReadings& read) const {
  return read.timed < kLeastShare * highest_.timed ||
         read.baseline < kLeastShare * highest_.baseline;
}

bool ClockWatch::keeps(const ClockReadings& read, double seconds) {
  saw(read);
  const double first_rest = std::clamp(seconds, kShortestRestSeconds, kLongestRestSeconds);
  if (!has_given_up_ && is_low(read)) {
    ++dropped_;
    lost_seconds_ += seconds;
    rest_seconds_ = std::clamp(2 * rest_seconds_, first_rest, kLongestRestSeconds);
    return false;
  }
  kept_readings_.push_back(read);
  if (rest_seconds_ > 0) {
    rest_seconds_ = std::max(rest_seconds_ / 2, first_rest);
  }
  return true;
}

bool ClockWatch::outdated() const {
  return !has_given_up_ && std::any_of(kept_readings_.begin(), kept_readings_.end(),
                                       [&](const ClockReadings& read) { return is_low(read); });
}

void ClockWatch::drop_kept() {
  dropped_ += std::ssize(kept_readings_);
  kept_readings_.clear();
}

void ClockWatch::give_up() {
  has_given_up_ = true;
  rest_seconds_ = 0;
}

ClockReadings ClockWatch::medians() const {
  const auto median_of = [&](double ClockReadings::*kind) {
    std::vector<double> mhz;
    for (const ClockReadings& read : kept_readings_) {
      if (std::isfinite(read.*kind)) {
        mhz.push_back(read.*kind);
      }
    }
    return mhz.empty() ? std::numeric_limits<double>::quiet_NaN() : summarize(mhz).median;
  };
  return {median_of(&ClockReadings::timed), median_of(&ClockReadings::baseline)};
}

}  // namespace lora_bench
