#pragma once

#include <cstdint>
#include <vector>

namespace lora_bench {

// Tells samples that a GPU took at a lowered clock (at its power cap, hot) from the others, and how
// long it is to rest before the next one. It reads no clock and waits for nothing itself: readings
// go in, seconds come out. A reading is NaN where no clock is known; then every sample is kept and
// nothing rests.
class ClockWatch {
 public:
  // What must still be there of the highest clock that was read: `compare` takes more than 3 % for
  // a regression, and a clock must not make one by itself.
  static constexpr double kLeastShare = 0.97;
  // The first rest is as long as the sample, and no shorter than the first of these; it doubles
  // with every sample that is dropped and halves with every one that is kept.
  static constexpr double kShortestRestSeconds = 2e-3;
  static constexpr double kLongestRestSeconds = 0.2;
  static constexpr double kMostLostSeconds = 2;  // of all rests and dropped samples together

  // `highest_mhz`: read on this GPU before; 0 where nothing was.
  explicit ClockWatch(double highest_mhz = 0) : highest_mhz_(highest_mhz) {}

  // A reading that belongs to no sample, as while it warms up.
  void saw(double mhz);
  // Whether a sample of so many seconds counts, of which the lowest reading was `mhz`.
  [[nodiscard]] bool keeps(double mhz, double seconds);
  // Whether a sample that was kept is below what is expected since: all of them go.
  [[nodiscard]] bool outdated() const;
  // The samples kept so far are dropped.
  void drop_kept();
  // Before the next sample; 0 = none.
  [[nodiscard]] double rest_seconds() const { return rest_seconds_; }
  void rested(double seconds) { lost_seconds_ += seconds; }
  // Whether rests and dropped samples have taken all the time that they may.
  [[nodiscard]] bool is_out_of_time() const {
    return !has_given_up_ && lost_seconds_ >= kMostLostSeconds;
  }
  // From now on every sample counts, at the clock that there is, and nothing rests.
  void give_up();

  [[nodiscard]] std::int64_t dropped() const { return dropped_; }
  [[nodiscard]] double highest_mhz() const { return highest_mhz_; }
  [[nodiscard]] double lost_seconds() const { return lost_seconds_; }
  [[nodiscard]] bool has_given_up() const { return has_given_up_; }
  // Of the samples that were kept; NaN where none was read.
  [[nodiscard]] double median_mhz() const;

 private:
  double highest_mhz_;
  std::vector<double> kept_mhz_;  // those that are known
  std::int64_t kept_ = 0, dropped_ = 0;
  double rest_seconds_ = 0, lost_seconds_ = 0;
  bool has_given_up_ = false;
};

}  // namespace lora_bench
