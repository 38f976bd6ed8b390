#pragma once

#include "layers/layer_problem.h"
#include "report/row.h"
#include "run/case_runner.h"

namespace lora_bench {

// The rest of run_case for op layer: proves the layer with all its shards, then times each alone
// beside its base. Throws as a backend may.
void layer_row(Row& row, LayerProblem problem, const CaseRequest& request, Targets& targets);

}  // namespace lora_bench
