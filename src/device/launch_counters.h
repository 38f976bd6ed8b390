#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"

namespace lora_bench {

// What a GPU counted while one launch ran, all its kernels together. Empty where the GPU has no
// such counter.
struct LaunchCounters {
  std::optional<std::int64_t> dram_read_bytes, dram_written_bytes;
  std::optional<double> l2_hit_rate;      // from 0 to 1
  std::optional<std::int64_t> sm_cycles;  // in which the busiest multiprocessor had work
};

// Counts one launch. Not all counters may fit one pass: for each pass it calls `prepare`, which
// brings the caches into the state in which the launch is to find them, and then `launch`, which
// returns when the device has done it.
using CountLaunch = std::function<LaunchCounters(const std::function<void()>& prepare,
                                                 const std::function<void()>& launch)>;

// The counters could not be read. The launch itself is not to blame.
class CountersFailed : public CaseError {
 public:
  using CaseError::CaseError;
};

// Which of its metrics a GPU counts for LaunchCounters.
struct CounterMetrics {
  // In the order of the columns; null where the GPU has none.
  std::vector<const char*> of_column;
  // A sentence on the columns that stay empty; "" = none.
  std::string missing;

  // Those that it counts.
  [[nodiscard]] std::vector<const char*> names() const;
};

// Of each column the first metric that the GPU called `chip` counts, as `counts` says.
[[nodiscard]] CounterMetrics choose_counter_metrics(
    const std::string& chip, const std::function<bool(const char* metric)>& counts);

// `values` are those of metrics.names(). A value that is no number leaves its column empty.
[[nodiscard]] LaunchCounters counters_of(const CounterMetrics& metrics,
                                         const std::vector<double>& values);

// What went wrong and what to do, where CUPTI's `call` returned `result`
// ("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"). `explanation` is CUPTI's own, for results without a
// remedy here; it may be empty.
[[nodiscard]] std::string why_counters_failed(const std::string& call, const std::string& result,
                                              const std::string& explanation);

}  // namespace lora_bench
