#pragma once

#include <vector>

#include "verify/layer_faults.h"

// What becomes of logits in the model of a layer (layer_model.cpp), perhaps with a fault.
namespace lora_bench {

// Shard by shard, each with its padding: [row][order_of_gathered].
[[nodiscard]] std::vector<double> gathered_logits(const ShardedLayer& layer, const ShardRows& terms,
                                                  std::size_t rows, LayerFault fault);
// The same in order and without padding.
[[nodiscard]] std::vector<double> logits_in_order(const ShardedLayer& layer,
                                                  const std::vector<double>& gathered,
                                                  LayerFault fault);

}  // namespace lora_bench
