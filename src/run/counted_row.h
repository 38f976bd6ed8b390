#pragma once

#include "report/row.h"
#include "run/case_runner.h"
#include "run/target.h"
#include "workload/problem.h"

namespace lora_bench {

// Where the request asks for it and the row PASSED: launches the backend once more, as cold as it
// was timed, and puts what was counted into the row. Counters that cannot be read become a warning;
// what the backend throws is thrown, and HUNG means that this launch did not come back.
void count_row(Row& row, const Problem& problem, const CaseRequest& request, Targets& targets);

}  // namespace lora_bench
