#pragma once

#include <string>
#include <vector>

#include "report/row.h"
#include "run/select.h"
#include "run/target.h"
#include "scenario/case.h"

namespace lora_bench {

struct CaseRequest {
  const Case& spec;
  const Selected& backend;
  bool relations = false;
  bool timing = true;
  Thresholds thresholds;
  std::string repro;  // the command that makes this row again
};

// Proves, then times what was proved. Whatever the backend does (throws, hangs, writes outside)
// ends in the row; only EnvironmentError passes through, since then no other row can be had.
[[nodiscard]] Row run_case(const CaseRequest& request, Targets& targets);

// "needs 2 GB of memory, 1 GB are free"; "" when it fits.
[[nodiscard]] std::string why_no_room(std::int64_t needed, std::int64_t available);

}  // namespace lora_bench
