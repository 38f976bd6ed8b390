#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/status.h"
#include "device/launch_counters.h"
#include "layers/layer_problem.h"
#include "measure/ceilings.h"
#include "measure/layer_time.h"
#include "measure/measure.h"
#include "report/row.h"
#include "run/case_runner.h"
#include "scenario/case.h"
#include "verify/verify.h"

namespace lora_bench {

// What was found of a backend on a case.
struct Finding {
  Status status = Status::kError;
  std::string message = {};
};

// What stands of findings in the order in which they were made. A doubt (MISTRUSTED, INVALID) takes
// the place of PASSED alone; everything else takes the place of what was found before.
[[nodiscard]] Finding prevailing(const std::vector<Finding>& findings);

// One launch more, of which the GPU counted.
struct Counted {
  LaunchCounters counters = {};
  std::string why_not = {};
  std::optional<Finding> end = {};  // it did not come back
};

// What a backend made of a case: all of a row that the case does not say itself.
struct Outcome {
  std::string numerics = {};               // that the backend declared
  std::optional<LayerProblem> layer = {};  // as it was launched, its overlap chosen
  std::optional<Verdict> verdict = {};
  std::optional<Measurement> op_time = {};
  std::optional<LayerMeasurement> layer_time = {};
  std::optional<double> plan_s = {}, touch_s = {};
  std::optional<double> first_call_s = {};  // of the host in the first launch
  // That the time is held against; none where no time was to be taken.
  std::optional<Ceilings> ceilings = {};
  bool ceilings_anew = false;  // the time made them be measured again
  Counted counted = {};
  std::optional<Finding> end = {};  // why it ended early: SKIPPED, HUNG or ERROR, found last
};

[[nodiscard]] Row row_of(const CaseRequest& request, const CaseStep& step, const Outcome& outcome);

[[nodiscard]] Row::Proof proof_of(const Verdict& verdict);

// Which thresholds a row misses, or may miss for all that its noise allows to say.
[[nodiscard]] Row::Limits held_to(const Row& row, const Thresholds& thresholds);

// When the last row says that the ceilings were measured anew for it: how many rows before it, of
// the same side of the machine, keep floors of the old ceilings.
[[nodiscard]] std::int64_t rows_of_old_ceilings(const std::vector<Row>& rows);
[[nodiscard]] std::string note_on_ceilings_anew(std::int64_t rows, const std::string& device);

}  // namespace lora_bench
