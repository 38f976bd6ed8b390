#pragma once

#include <cstdint>
#include <vector>

#include "layers/layer_engine.h"
#include "layers/layer_tensors.h"
#include "reference/layer.h"
#include "verify/verify.h"

namespace lora_bench {

// Loads what was drawn: the base, and every adapter at its slot.
void load_layer(LayerEngine& engine, const LayerProblem& problem, const LayerTensors& tensors);

// Compares what every shard ended with to the layer that is not divided.
[[nodiscard]] Verdict compare_layer(const LayerEngine& engine, const LayerProblem& problem,
                                    const LayerTensors& tensors,
                                    const reference::LayerArithmetic& arithmetic,
                                    const std::vector<std::int64_t>& rows);

// What the two backends declared of the shards' problems, as the oracle takes it.
[[nodiscard]] reference::LayerArithmetic layer_arithmetic(const LayerProblem& problem,
                                                          const Backend& base, const Backend& lora);

// Runs a layer once, all its shards in turn, on numbers of full mantissa, and compares (level 2 of
// docs/verifying.md). The backends support the shards' problems.
[[nodiscard]] Verdict verify_layer(const LayerProblem& problem, const Backend& base,
                                   const Backend& lora, Memory& memory,
                                   const VerifyOptions& options);

}  // namespace lora_bench
