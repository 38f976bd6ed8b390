#pragma once

#include <cstdint>

#include "layers/layer_problem.h"
#include "measure/measure.h"

// What timing the shards of a layer alone and timing them together have in common.
namespace lora_bench {

constexpr std::int64_t kMostLayerSets = 32;

// Of all shards.
[[nodiscard]] std::int64_t weight_bytes_of_layer(const LayerProblem& problem);
// Whole layers to rotate through: of which the shards of one rank are more than three caches hold.
[[nodiscard]] std::int64_t layer_sets(const LayerProblem& problem, CacheMode cache,
                                      std::int64_t cache_bytes);
// How well the tax is known: half the interval of the median of what each layer's sample took
// longer than the base's before, and no less than what shows that more is amiss: that this median
// is another, that the layer differs from itself by more, or that adapters seem to save time.
[[nodiscard]] double noise_of_tax(const Measurement& measured, double tax_s);

}  // namespace lora_bench
