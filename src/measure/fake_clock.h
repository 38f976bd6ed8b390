#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "measure/clock.h"

namespace lora_bench {

// A clock whose times are written in advance, so that sampling, stopping and statistics are tested
// without waiting. Launches are run for their effects; time passes only by the script.
class FakeClock final : public Clock {
 public:
  // Seconds of one launch in the given run of the slot (counted from 0 over the clock's life).
  using Script = std::function<double(int slot, std::int64_t run)>;
  explicit FakeClock(Script seconds_per_launch) : script_(std::move(seconds_per_launch)) {}

  void load(int slot, std::vector<Launch> sequence) override {
    slots_[slot].sequence = std::move(sequence);
  }
  [[nodiscard]] double run_seconds(int slot) override {
    Slot& loaded = loaded_in(slots_, slot);
    for (const Launch& launch : loaded.sequence) {
      launch(Stream{});
    }
    const double seconds =
        script_(slot, loaded.runs++) * static_cast<double>(loaded.sequence.size());
    now_seconds_ += seconds;
    return seconds;
  }
  [[nodiscard]] Conditions conditions() override { return conditions_; }
  [[nodiscard]] double resolution_seconds() const override { return resolution_seconds_; }
  [[nodiscard]] double now_seconds() override { return now_seconds_; }

  [[nodiscard]] Launch separator() override { return separator_; }
  [[nodiscard]] double sm_clock_mhz() override {
    return sm_clock_ ? sm_clock_() : std::numeric_limits<double>::quiet_NaN();
  }
  void rest(double seconds) override {
    advance(seconds);
    rested_seconds_ += seconds;
  }

  // Without one launches never overlap.
  void set_separator(Launch separator) { separator_ = std::move(separator); }
  // Asked once a reading; without it no clock is known.
  void set_sm_clock(std::function<double()> mhz) { sm_clock_ = std::move(mhz); }
  [[nodiscard]] double rested_seconds() const { return rested_seconds_; }
  void set_conditions(Conditions conditions) { conditions_ = std::move(conditions); }
  void set_resolution_seconds(double seconds) { resolution_seconds_ = seconds; }
  // Time that passes outside of runs.
  void advance(double seconds) { now_seconds_ += seconds; }
  [[nodiscard]] std::int64_t runs(int slot) const {
    const auto found = slots_.find(slot);
    return found == slots_.end() ? 0 : found->second.runs;
  }
  [[nodiscard]] std::int64_t launches(int slot) const {  // in the loaded sequence
    const auto found = slots_.find(slot);
    return found == slots_.end() ? 0 : std::ssize(found->second.sequence);
  }

 private:
  struct Slot {
    std::vector<Launch> sequence;
    std::int64_t runs = 0;
  };

  Script script_;
  std::map<int, Slot> slots_;
  Conditions conditions_;
  Launch separator_;
  std::function<double()> sm_clock_;
  double rested_seconds_ = 0;
  double resolution_seconds_ = 1e-9;
  double now_seconds_ = 0;
};

}  // namespace lora_bench
