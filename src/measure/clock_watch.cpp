#include "measure/clock_watch.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "measure/statistics.h"

namespace lora_bench {

void ClockWatch::saw(double mhz) {
  if (mhz > highest_mhz_) {  // false for NaN
    highest_mhz_ = mhz;
  }
}

bool ClockWatch::keeps(double mhz, double seconds) {
  saw(mhz);
  const double first_rest = std::clamp(seconds, kShortestRestSeconds, kLongestRestSeconds);
  if (!has_given_up_ && mhz < kLeastShare * highest_mhz_) {
    ++dropped_;
    lost_seconds_ += seconds;
    rest_seconds_ = std::clamp(2 * rest_seconds_, first_rest, kLongestRestSeconds);
    return false;
  }
  ++kept_;
  if (std::isfinite(mhz)) {
    kept_mhz_.push_back(mhz);
  }
  if (rest_seconds_ > 0) {
    rest_seconds_ = std::max(rest_seconds_ / 2, first_rest);
  }
  return true;
}

bool ClockWatch::outdated() const {
  return !has_given_up_ && std::any_of(kept_mhz_.begin(), kept_mhz_.end(), [&](double mhz) {
    return mhz < kLeastShare * highest_mhz_;
  });
}

void ClockWatch::drop_kept() {
  dropped_ += kept_;
  kept_ = 0;
  kept_mhz_.clear();
}

void ClockWatch::give_up() {
  has_given_up_ = true;
  rest_seconds_ = 0;
}

double ClockWatch::median_mhz() const {
  return kept_mhz_.empty() ? std::numeric_limits<double>::quiet_NaN() : summarize(kept_mhz_).median;
}

}  // namespace lora_bench
