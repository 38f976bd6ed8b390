#pragma once

#include <cstdint>
#include <vector>

#include "reference/layer.h"
#include "verify/diagnose.h"
#include "verify/layer_faults.h"

namespace lora_bench {

// What each shard ended with, [shard]; columns as columns_of_output has them.
using ShardOutputs = std::vector<Matrix>;

// The fault whose prediction agrees with the rows of the oracle in what every shard ended with;
// empty where none does, or where the layer is so large that asking would take long.
[[nodiscard]] Hypothesis diagnose_layer(const LayerStory& story, const reference::LayerRows& oracle,
                                        const ShardOutputs& got);

}  // namespace lora_bench
