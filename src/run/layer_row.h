#pragma once

#include <cstdint>

#include "layers/layer_problem.h"
#include "measure/ceilings.h"
#include "measure/layer_time.h"
#include "report/row.h"
#include "run/case_runner.h"
#include "scenario/case.h"

namespace lora_bench {

// What a row says of a layer beside what it says of every case. Bytes and flops are those of the
// first shard, which has no less to do than the others.
void describe_layer(Row& row, const LayerProblem& problem, Comm comm);
void add_layer_measurement(Row& row, const LayerMeasurement& measurement);
// floor_us of the shard that the row names, else of the first, and what of it is the adapters'.
void add_layer_floor(Row& row, const LayerProblem& problem, const MeasureSettings& settings,
                     const Ceilings& ceilings);

// The rest of run_case for op layer: proves the layer with all its shards, then times each alone
// beside its base. Throws as a backend may.
void layer_row(Row& row, LayerProblem problem, const CaseRequest& request, Targets& targets);

}  // namespace lora_bench
