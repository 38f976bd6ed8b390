#pragma once

#include <cstdint>
#include <vector>

#include "workload/tensors.h"

namespace lora_bench {

// How an element follows from its random bits: uniform in (-1, 1), or one of +-{1 .. integers}
// when `integers` is not 0; times `factor`.
struct ElementLaw {
  std::int64_t integers = 0;
  float factor = 1;
};

struct FillSizes {
  ElementLaw x, a, h, y, bias;
  std::vector<ElementLaw> b;  // [slots]
  std::vector<float> scale;   // [slots]
};

// Depends on shapes, ranks, scales, seed and which adapters the batch uses, never on its order:
// permuted batches share adapters.
[[nodiscard]] FillSizes fill_sizes(const Problem& problem, Fill fill, std::uint64_t seed);

}  // namespace lora_bench
