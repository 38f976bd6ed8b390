#pragma once

#include <cstdint>
#include <vector>

#include "scenario/case.h"

namespace lora_bench {

// A small valid case, drawn over nearly everything that a scenario can say: ops, dtypes, odd sizes,
// slices, strides, ragged ranks, laws (all but a trace, which needs a file). The same (seed, index)
// draws the same case.
[[nodiscard]] Case random_case(std::uint64_t seed, std::uint64_t index);

// A few cases that between them show every fault of the mutant catalogue; each named by its id.
[[nodiscard]] std::vector<Case> telling_cases();

}  // namespace lora_bench
