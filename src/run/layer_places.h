#pragma once

#include <memory>
#include <string>
#include <vector>

#include "layers/layer_home.h"
#include "run/case_runner.h"
#include "run/watch.h"

namespace lora_bench {

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
