#pragma once

#include <vector>

#include "run/run.h"
#include "scenario/case.h"

namespace lora_bench {

// Those of the case, each replaced by the one of the command line that is set.
[[nodiscard]] Thresholds thresholds_of(const Case& spec, const Thresholds& asked);

// Throws UsageError, before any work, where one of the rows has a threshold and takes no time to
// judge by it: passing would say more than was looked at. `max_regression` is for `compare`.
void refuse_unjudged(const RunRequest& request, const std::vector<PlannedRow>& planned);

}  // namespace lora_bench
