#pragma once

#include <cstdint>
#include <vector>

#include "scenario/case.h"

namespace lora_bench {

// A valid case that is cheap to prove, drawn over nearly everything that a scenario can say: ops,
// dtypes, odd sizes, slices, strides, ragged ranks, laws (all but a trace, which needs a file).
// Every size reaches what a scenario takes (K and N: 2^20), every power of two with a chance that
// some hundred cases make a certainty; the others are then as small as keeps the case cheap. The
// same (seed, index) draws the same case.
[[nodiscard]] Case random_case(std::uint64_t seed, std::uint64_t index);

// A few cases that between them show every fault of the mutant catalogue; each named by its id.
[[nodiscard]] std::vector<Case> telling_cases();

}  // namespace lora_bench
