#pragma once

#include <cfenv>

namespace lora_bench {

// How this thread rounds, and whether it flushes small numbers to zero, is after it as before:
// other people's code that changes it must not change what comes next, the proof above all.
class KeptFloatingPoint {
 public:
  KeptFloatingPoint() { std::fegetenv(&before_); }
  ~KeptFloatingPoint() { std::fesetenv(&before_); }
  KeptFloatingPoint(const KeptFloatingPoint&) = delete;
  KeptFloatingPoint& operator=(const KeptFloatingPoint&) = delete;

 private:
  std::fenv_t before_{};
};

}  // namespace lora_bench
