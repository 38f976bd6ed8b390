#pragma once

#include <cstdint>

#include "layers/layer_engine.h"
#include "layers/layer_problem.h"
#include "workload/tensors.h"

namespace lora_bench {

// Weights and input of a whole layer in host memory.
struct LayerTensors {
  Tensors lora;                   // x, A and B of all slots, scales
  Matrix w;                       // [N, K]
  Matrix bias;                    // [1, N], empty without
  std::vector<std::int32_t> ids;  // [M] of layers that look up: x has a one there, else zeros
};

// Sized so that what the adapters add is about as large as the base.
[[nodiscard]] LayerTensors draw_layer_tensors(const LayerProblem& problem, Fill fill,
                                              std::uint64_t seed);

// The adapter of a slot as its file would have it: no lanes above its rank.
[[nodiscard]] AdapterWeights adapter_of(const LayerProblem& problem, const LayerTensors& tensors,
                                        std::int64_t slot);

// Every adapter at its slot; none where its rank is 0.
void load_adapters(LayerEngine& engine, const LayerProblem& problem, const LayerTensors& tensors);
// Loads what was drawn: the base, the input, and the adapters.
void load_layer(LayerEngine& engine, const LayerProblem& problem, const LayerTensors& tensors);

}  // namespace lora_bench
