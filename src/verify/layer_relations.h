#pragma once

#include <string>

#include "layers/layer_home.h"
#include "layers/layer_tensors.h"
#include "reference/layer.h"

namespace lora_bench {

// Level 3 of a whole layer: what must hold among its own results, whatever the oracle says. "" when
// all of it holds, else the first relation that does not. `oracle` says how far a result may be
// off.
[[nodiscard]] std::string broken_layer_relation(const LayerProblem& problem,
                                                const LayerTensors& tensors, const LayerHome& home,
                                                const reference::LayerRows& oracle);

}  // namespace lora_bench
