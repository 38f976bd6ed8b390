#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "device/gpu_group.h"
#include "device/system_files.h"
#include "ops/backend.h"
#include "scenario/case.h"

namespace lora_bench {

// What the machine was doing around a sample; absent facts are NaN or "".
struct Conditions {
  double clock_mhz = 0;  // SM clock, or CPU frequency
  double temperature_c = 0;
  double power_w = 0;
  std::string throttle;              // "" = none; "sw_power_cap", "hw_thermal" ...
  double load = 0;                   // load average of the last minute per core (CPU)
  std::string governor;              // CPU frequency governor
  std::optional<CpuTimes> cpu = {};  // of this process (CPU)
  // A fixed piece of work that is no backend's (CPU): where it takes longer, the machine is slower.
  double yardstick_s = std::numeric_limits<double>::quiet_NaN();
};

using Launch = std::function<void(Stream)>;

// Runs a loaded sequence of launches and says how long it took. Implementations: host
// (steady_clock), CUDA (events around a graph replay or around stream launches), fake (tests).
class Clock {
 public:
  virtual ~Clock() = default;
  // Makes the sequence ready (CUDA graph: captures and instantiates). Replaces an earlier one with
  // the same `slot`; two slots let A and B interleave.
  virtual void load(int slot, std::vector<Launch> sequence) = 0;
  // Runs it once; seconds for the whole sequence.
  [[nodiscard]] virtual double run_seconds(int slot) = 0;
  [[nodiscard]] virtual Conditions conditions() = 0;
  // Smallest time the clock can tell apart.
  [[nodiscard]] virtual double resolution_seconds() const = 0;
  // Seconds since some start, for warm-up and time limits.
  [[nodiscard]] virtual double now_seconds() = 0;
  // What does as the launch does now, for launches that cost the host much: where sequences are
  // recorded, the launch is made and recorded here, and what is returned repeats the recording.
  // Elsewhere it is the launch itself.
  [[nodiscard]] virtual Launch kept(Launch launch) { return launch; }
  // A launch of something else that touches no operand, begins only when the launch before it has
  // ended, and lets the next begin only when it has ended itself. Empty where launches never
  // overlap.
  [[nodiscard]] virtual Launch separator() { return nullptr; }
  // What multiprocessors ran at in the last run or, of several GPUs, what the slowest is clocked at
  // now; NaN where that is not known, as of a run that was too short to count clocks.
  [[nodiscard]] virtual double sm_clock_mhz() { return std::numeric_limits<double>::quiet_NaN(); }
  // Leaves the machine alone for a while; where time is made up, nothing happens.
  virtual void rest(double /*seconds*/) {}
};

// For implementations: what is loaded in a slot.
template <typename Loaded>
[[nodiscard]] Loaded& loaded_in(std::map<int, Loaded>& slots, int slot) {
  const auto found = slots.find(slot);
  if (found == slots.end()) {
    throw std::logic_error("clock: nothing is loaded in this slot");
  }
  return found->second;
}

[[nodiscard]] std::unique_ptr<Clock> make_host_clock();
[[nodiscard]] std::unique_ptr<Clock> make_device_clock(LaunchMode mode);
// Of what is launched on all GPUs of a group, on their streams: all begin at once, and the one that
// ends last counts.
[[nodiscard]] std::unique_ptr<Clock> make_gpu_group_clock(std::shared_ptr<const GpuGroup> gpus,
                                                          LaunchMode mode);

// Seconds that a fixed piece of work takes on the cores of this process now: arithmetic, reading of
// memory that no cache holds, and short loops that wake all threads. It is the same whatever is
// measured, so two runs in which it differs were made on a machine that had changed. Takes about
// 20 ms.
[[nodiscard]] double yardstick_seconds();

}  // namespace lora_bench
