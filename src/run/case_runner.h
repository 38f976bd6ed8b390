#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/launch_counters.h"
#include "measure/measure.h"
#include "report/row.h"
#include "run/select.h"
#include "run/target.h"
#include "scenario/case.h"
#include "verify/groundwork.h"

namespace lora_bench {

struct CaseRequest {
  const Case& spec;
  const Selected& backend;
  bool relations = false;
  bool timing = true;
  bool touch = false;  // see RunRequest
  bool alone = true;   // time it between other launches as well
  Thresholds thresholds = {};
  std::string repro = {};       // the command that makes this row again
  CountLaunch count = nullptr;  // counts one launch of a PASSED row; empty = nothing is counted
};

// The groundwork of the case in hand, from the row of one backend to that of the next. Gone with
// the first row of another case, and after every row of a plugin or of what did not pass: what may
// have written where it must not is not trusted to have left it as it was.
using KeptGroundwork = std::shared_ptr<Groundwork>;

// Proves, then times what was proved. Whatever the backend does (throws, hangs, writes outside)
// ends in the row; only EnvironmentError passes through, since then no other row can be had.
[[nodiscard]] Row run_case(const CaseRequest& request, Targets& targets, KeptGroundwork& kept);

// What is wrong with what timed launches left: of the rows that it names as the oracle has them;
// where it names none, of the whole, stray writes and what was never written.
[[nodiscard]] Look check_left(const Numerics& numerics, const Left& left);

// "needs 2 GB of memory, 1 GB are free"; "" when it fits.
[[nodiscard]] std::string why_no_room(std::int64_t needed, std::int64_t available);

}  // namespace lora_bench
