#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "device/launch_counters.h"

namespace lora_bench {

// What CUPTI has to know to count the metrics on the first GPU.
struct CounterSetup {
  std::string chip;  // "GH100"
  CounterMetrics metrics;
  std::vector<std::uint8_t> availability, config;  // images that CUPTI alone reads
  std::int64_t passes = 0;
};

// Both throw CountersFailed with the call of CUPTI that failed and its result, or with what is
// missing. CUPTI is attached to the process only while they work.
[[nodiscard]] CounterSetup set_up_counters();
// The values of setup.metrics.names(), counted while `launch` ran; empty where CUPTI kept none.
[[nodiscard]] std::vector<double> count_by_cupti(const CounterSetup& setup,
                                                 const std::function<void()>& prepare,
                                                 const std::function<void()>& launch);

// What happens while it lives stands in a range "lora-bench" of a profiler that listens (NVTX), and
// there in one of that name; nothing in a build without CUDA.
class ProfilerRange {
 public:
  explicit ProfilerRange(const std::string& name);
  ~ProfilerRange();
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
};

// "" when the counters of the first GPU can be read here, else the sentence: built without CUDA or
// CUPTI, no GPU, no libcupti, no permission.
[[nodiscard]] std::string why_no_counters();

// Reads counters of the first GPU through CUPTI, which is loaded at run time. CUPTI is attached to
// the process only while count() works, so that it does not slow what is timed.
class CounterSession {
 public:
  // Counts once, to see that all calls work. Throws EnvironmentError with why_no_counters.
  CounterSession();

  // A sentence on what this GPU does not count; "" = it counts all.
  [[nodiscard]] const std::string& missing() const { return setup_.metrics.missing; }

  // Throws CountersFailed with the call of CUPTI that failed and its result, and whatever `prepare`
  // and `launch` throw. Both run on the calling thread.
  [[nodiscard]] LaunchCounters count(const std::function<void()>& prepare,
                                     const std::function<void()>& launch) const;

 private:
  CounterSetup setup_;
};

// Counts by a session that is made when it first counts.
[[nodiscard]] CountLaunch count_by_own_session();

}  // namespace lora_bench
