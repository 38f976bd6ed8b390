#pragma once

#include "workload/batch.h"

namespace lora_bench {

// Fills expert_of_choice and weight_of_choice of a batch whose rows have their adapters. What a row
// chooses follows from the seed, the number of the row and, where adapters order the experts their
// own way, from its adapter. Rows behind the last sequence choose -1 with weight 0.
void draw_routing(const Case& spec, Batch& batch);

}  // namespace lora_bench
