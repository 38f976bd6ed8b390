#pragma once

#include <string>
#include <vector>

#include "verify/layer_diagnose.h"
#include "verify/layer_faults.h"
#include "verify/mutants.h"

namespace lora_bench {

// Small layers of every kind, divided in every way, with ragged ranks, rows without adapter, blocks
// that adapters leave alone, blocks of no columns, a base bias.
struct TellingLayer {
  std::string id;  // "row-tp4-fully"
  LayerProblem problem;
};
[[nodiscard]] std::vector<TellingLayer> telling_layers();

// What every shard would end with if the layer had the fault, in the dtype of y.
[[nodiscard]] ShardOutputs faulty_outputs(const LayerStory& story, LayerFault fault);

// The first of the layers whose proof catches the fault, and whether it is named as it is.
[[nodiscard]] SelfTestRow hunt_layer(const LayerFaultDoc& doc,
                                     const std::vector<TellingLayer>& layers,
                                     const Stop& stop = never);

// The engine on the host, with the cpu backend, and the faultless model over all of them; a failure
// is a false alarm.
void try_right_layers(const std::vector<TellingLayer>& layers, SelfTestReport& report,
                      const Stop& stop = never);

}  // namespace lora_bench
