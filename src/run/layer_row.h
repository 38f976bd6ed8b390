#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "layers/layer_engine.h"
#include "layers/layer_problem.h"
#include "measure/ceilings.h"
#include "measure/layer_time.h"
#include "report/row.h"
#include "run/case_runner.h"
#include "run/watch.h"
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

// The backends, memories and GPUs that a layer runs with, with every call that may hang stamped in
// the pulse.
struct LayerPlaces {
  std::vector<std::shared_ptr<const Backend>> base, lora;  // one for all shards, or one for each
  std::vector<std::shared_ptr<Memory>> memories;
  std::shared_ptr<const GpuGroup> gpus;  // of comm nccl
  std::shared_ptr<Communicator> communicator;
  std::shared_ptr<Communicator>
      connected;  // of comm nccl the same without a pulse, for other cases
  [[nodiscard]] LayerHome home() const;
};

// Why the case has no place here, "" when it has.
[[nodiscard]] std::string why_no_places(const CaseRequest& request);
// All but a communicator that is not there yet, whose making may hang: `connect` makes that one.
[[nodiscard]] LayerPlaces layer_places(const CaseRequest& request, Targets& targets,
                                       const std::shared_ptr<Pulse>& pulse);
void connect(LayerPlaces& places, const std::shared_ptr<Pulse>& pulse);

}  // namespace lora_bench
