#pragma once

#include <set>
#include <string>
#include <vector>

#include "core/error.h"

namespace lora_bench {

// Gathers what is wrong with a scenario, so that a user sees all of it in one go. The same message
// at the same place is kept once: a wrong base value meets every case of a sweep.
class Diagnostics {
 public:
  void add(Location where, std::string what, std::string allowed = "", std::string suggestion = "");
  void add_all(const std::vector<Diagnostic>& others);
  [[nodiscard]] const std::vector<Diagnostic>& all() const { return diagnostics_; }
  [[nodiscard]] bool empty() const { return diagnostics_.empty(); }
  [[nodiscard]] std::size_t size() const { return diagnostics_.size(); }
  // Throws UsageError, in order of file, line and column, unless empty.
  void throw_if_any();

 private:
  std::vector<Diagnostic> diagnostics_;
  std::set<std::string> seen_;
};

}  // namespace lora_bench
