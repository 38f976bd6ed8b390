#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "run/child.h"

namespace lora_bench {

// A worker (run/worker.h): a process of one backend, or of several that do not need their own, and
// what it said of the first.
class IsolatedBackend {
 public:
  explicit IsolatedBackend(const std::vector<std::string>& command);

  [[nodiscard]] bool refused() const { return hello_.kind == 'u'; }
  [[nodiscard]] bool on_device() const { return hello_.text.starts_with("cuda"); }
  [[nodiscard]] const std::string& hello() const { return hello_.text; }
  [[nodiscard]] std::string why_not_here() const;
  // How many requests it got.
  [[nodiscard]] std::int64_t asked() const { return asked_; }
  // What it said instead of being ready, when it is not.
  [[nodiscard]] Answer ask(const std::string& request);

 private:
  Child child_;
  Answer hello_;
  std::int64_t asked_ = 0;
};

}  // namespace lora_bench
