#pragma once

#include "core/random.h"
#include "kernels/clustered/clustered_tuning.h"

// Shapes for the tunings of `clustered` and `resident`, any layer and rank.
inline lora_bench::kernels::ClusteredShape drawn_cluster_shape(std::uint64_t seed,
                                                               std::uint64_t index,
                                                               std::uint64_t most_adapters) {
  std::uint64_t drawn = 0;
  const auto below = [&](std::uint64_t bound) {
    return static_cast<std::int64_t>(lora_bench::random_below(seed, index, drawn++, bound));
  };
  lora_bench::kernels::ClusteredShape shape;
  shape.active = 1 + below(most_adapters);
  shape.tokens = 1 + below(static_cast<std::uint64_t>(24 * shape.active));
  shape.slices = 1 + below(4);
  shape.max_rank = 4 * (1 + below(32));
  shape.in_features = 8 * (1 + below(2000));
  shape.columns = 8 * (1 + below(8000));
  shape.hidden_vectors = 1 + below(6);
  return shape;
}
