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

}  // namespace lora_bench
