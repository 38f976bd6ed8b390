#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/memory.h"
#include "measure/clock.h"
#include "ops/backend.h"
#include "report/row.h"
#include "run/case_runner.h"
#include "run/target.h"
#include "run/watch.h"
#include "verify/verify.h"
#include "workload/problem.h"

namespace lora_bench {

// One backend on one case. It owns everything that the working thread touches, so that a backend
// that hangs can be left behind with it.
class Attempt {
 public:
  Attempt(const CaseRequest& request, Targets& targets);
  virtual ~Attempt() = default;
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  // On the working thread, and may throw and hang as a backend may: whether the backend takes the
  // case and what it declares; then the proof, and the time where there is a clock.
  virtual void ask() = 0;
  virtual void prove_and_time() = 0;

  // On the thread that waits, between these and after them.
  virtual void asked(Targets&) {}
  [[nodiscard]] virtual std::int64_t needed_bytes(bool timing) const = 0;
  [[nodiscard]] virtual std::shared_ptr<Clock> make_clock(LaunchMode mode) const = 0;
  virtual void add_measured(Row& row) const = 0;  // nothing where nothing was timed
  virtual void add_floor(Row& row, const Ceilings& ceilings) const = 0;

  Case spec;
  std::shared_ptr<Pulse> pulse = std::make_shared<Pulse>();
  Space space;
  DeviceFacts facts;
  bool relations;
  std::shared_ptr<Memory> memory;
  std::shared_ptr<Clock> clock;  // null = proof only
  Support support;
  std::string numerics;
  std::optional<Verdict> verdict;
  std::optional<double> plan_s;
};

// Asks, proves and times, and puts what came of it into the row. Throws what the backend throws.
void run_attempt(Row& row, const std::shared_ptr<Attempt>& attempt, const CaseRequest& request,
                 Targets& targets);

// False, and the row says so, when `work` did not come back; it keeps alive what it works on.
[[nodiscard]] bool came_back(Row& row, std::function<void()> work, const Pulse& pulse,
                             double timeout_s);

// What stands in place of a verdict where none was asked for.
[[nodiscard]] Verdict not_verified();

// Where the request asks for it and the row PASSED: launches the backend once more, as cold as it
// was timed, and puts what was counted into the row. Counters that cannot be read become a warning;
// what the backend throws is thrown, and HUNG means that this launch did not come back.
void count_row(Row& row, const Problem& problem, const CaseRequest& request, Targets& targets);

// Of a row whose time made the ceilings be measured anew: a warning in it, for every stored file.
void warn_of_ceilings_anew(Row& row);

// When the last row carries that warning: how many rows before it, of the same side of the machine,
// keep floors of the old ceilings.
[[nodiscard]] std::int64_t rows_of_old_ceilings(const std::vector<Row>& rows);
[[nodiscard]] std::string note_on_ceilings_anew(std::int64_t rows, const std::string& device);

}  // namespace lora_bench
