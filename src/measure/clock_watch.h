#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace lora_bench {

// Clocks that each multiprocessor has counted, and when; 0 where none was marked.
struct ClockMarks {
  std::span<const std::int64_t> clocks, ns;
};
// At how many MHz multiprocessors ran between two marks, the median of those that have both. NaN
// where none has, or where they are too close for the timer of a GPU.
[[nodiscard]] double mean_mhz(const ClockMarks& before, const ClockMarks& after);

// MHz of what is timed and of what it is timed against; NaN where none was read.
struct ClockReadings {
  double timed = std::numeric_limits<double>::quiet_NaN();
  double baseline = std::numeric_limits<double>::quiet_NaN();
};

// Tells samples that a GPU took at a lowered clock (at its power cap, hot) from the others, and how
// long it is to rest before the next one. It reads no clock and waits for nothing itself: readings
// go in, seconds come out. Where no clock is known every sample is kept and nothing rests. At its
// power cap a GPU runs other work at other clocks, so what is timed and what it is timed against
// each have a highest clock of their own.
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

  // `highest`: read of the same work before.
  explicit ClockWatch(const ClockReadings& highest = {}) : highest_(highest) {}

  // Readings that belong to no sample, as while it warms up.
  void saw(const ClockReadings& read);
  // Whether a sample of so many seconds counts.
  [[nodiscard]] bool keeps(const ClockReadings& read, double seconds);
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
  [[nodiscard]] const ClockReadings& highest() const { return highest_; }
  [[nodiscard]] double lost_seconds() const { return lost_seconds_; }
  [[nodiscard]] bool has_given_up() const { return has_given_up_; }
  // Medians of the samples that were kept.
  [[nodiscard]] ClockReadings medians() const;

 private:
  // Whether either is lower than the highest of its kind allows.
  [[nodiscard]] bool is_low(const ClockReadings& read) const;

  ClockReadings highest_;
  std::vector<ClockReadings> kept_readings_;
  std::int64_t dropped_ = 0;
  double rest_seconds_ = 0, lost_seconds_ = 0;
  bool has_given_up_ = false;
};

}  // namespace lora_bench
