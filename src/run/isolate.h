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

// The parent's side of --isolate: a process for each backend (run/worker.h), started again when it
// crashed, hung or lost its device.
class Isolation {
 public:
  // Starts one for each spelling. Throws UsageError when one of them refuses its backend.
  Isolation(const RunRequest& request, const std::vector<std::string>& spellings);
  ~Isolation();
  Isolation(const Isolation&) = delete;
  Isolation& operator=(const Isolation&) = delete;

  // By spelling; none has a Backend here.
  [[nodiscard]] const std::map<std::string, Selected>& selected() const { return selected_; }
  [[nodiscard]] Space space() const;  // the device if any works there

  // ERROR with what happened when the process ended. Throws EnvironmentError when fresh processes
  // find the machine unusable.
  [[nodiscard]] Row run(const PlannedRow& planned);

 private:
  [[nodiscard]] IsolatedBackend& worker(const std::string& spelling);

  const RunRequest& request_;
  std::map<std::string, Selected> selected_;
  std::map<std::string, std::unique_ptr<IsolatedBackend>> workers_;
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
