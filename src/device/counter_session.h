#pragma once

#include <functional>
#include <string>

#include "device/cupti.h"
#include "device/launch_counters.h"

namespace lora_bench {

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
