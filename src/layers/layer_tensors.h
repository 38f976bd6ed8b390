#pragma once

#include <cstdint>

#include "layers/layer_engine.h"
#include "layers/layer_problem.h"
#include "workload/tensors.h"

namespace lora_bench {

// Weights and input of a whole layer in host memory.
struct LayerTensors {
  Tensors lora;  // x, A and B of all slots, scales
  Matrix w;      // [N, K]
  Matrix bias;   // [1, N], empty without
};

// Sized so that what the adapters add is about as large as the base.
[[nodiscard]] LayerTensors draw_layer_tensors(const LayerProblem& problem, Fill fill,
                                              std::uint64_t seed);

// The adapter of a slot as its file would have it: no lanes above its rank.
[[nodiscard]] AdapterWeights adapter_of(const LayerProblem& problem, const LayerTensors& tensors,
                                        std::int64_t slot);

// Loads what was drawn: the base, the input, and every adapter at its slot.
void load_layer(LayerEngine& engine, const LayerProblem& problem, const LayerTensors& tensors);

}  // namespace lora_bench
