#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "device/memory.h"
#include "report/row.h"
#include "run/run.h"
#include "run/select.h"
#include "run/worker.h"

namespace lora_bench {

class IsolatedBackend;

// The parent's side of --isolate and of --jobs: processes that make rows (run/worker.h), started
// again when one crashed, hung or lost its device.
class Isolation {
 public:
  // Starts a process for each spelling. Throws UsageError when one of them refuses its backend.
  Isolation(const RunRequest& request, const std::vector<std::string>& spellings);
  // One process for all backends of `selected`; it starts with the first row.
  Isolation(const RunRequest& request, std::map<std::string, Selected> selected);
  ~Isolation();
  Isolation(const Isolation&) = delete;
  Isolation& operator=(const Isolation&) = delete;

  // By spelling; none has a Backend here where each has a process of its own.
  [[nodiscard]] const std::map<std::string, Selected>& selected() const { return selected_; }
  [[nodiscard]] Space space() const;  // the device if any works there

  // ERROR with what happened when the process ended. Throws EnvironmentError when fresh processes
  // find the machine unusable.
  [[nodiscard]] Row run(const PlannedRow& planned);

 private:
  // The value of --backends of the process that serves this one.
  [[nodiscard]] std::string served_as(const std::string& spelling) const;
  [[nodiscard]] IsolatedBackend& worker(const std::string& served);

  const RunRequest& request_;
  std::map<std::string, Selected> selected_;
  std::string together_;  // the spellings that share a process; "" = each has its own
  std::map<std::string, std::unique_ptr<IsolatedBackend>> workers_;  // by what they serve
  bool on_device_ = false;
  int unusable_in_turn_ = 0;
};

// A worker (run/worker.h): a process of one backend, or of several that do not need their own, and
// what it said of the first.
class IsolatedBackend {
 public:
  explicit IsolatedBackend(const std::vector<std::string>& command);

  [[nodiscard]] bool refused() const { return hello_.kind == 'u'; }
  [[nodiscard]] bool on_device() const { return hello_.text.starts_with("cuda"); }
  [[nodiscard]] const std::string& hello() const { return hello_.text; }
  [[nodiscard]] std::string why_not_here() const { return part_of_hello(1); }
  [[nodiscard]] std::string plugin() const { return part_of_hello(2); }
  // How many requests it got.
  [[nodiscard]] std::int64_t asked() const { return asked_; }
  // What it said instead of being ready, when it is not.
  [[nodiscard]] Answer ask(const std::string& request);

 private:
  [[nodiscard]] std::string part_of_hello(int number) const;

  Child child_;
  Answer hello_;
  std::int64_t asked_ = 0;
};

}  // namespace lora_bench
