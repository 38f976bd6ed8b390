#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "scenario/case.h"

namespace lora_bench {

// A valid case that is cheap to prove, drawn over nearly everything that a scenario can say: ops,
// dtypes, odd sizes, slices, strides, ragged ranks, laws (all but a trace, which needs a file).
// Every size reaches what a scenario takes (K and N: 2^20), every power of two with a chance that
// some hundred cases make a certainty; the others are then as small as keeps the case cheap. The
// same (seed, index) draws the same case.
[[nodiscard]] Case random_case(std::uint64_t seed, std::uint64_t index);

// A valid case of op layer that is cheap to prove: every kind, division and field of layers.
[[nodiscard]] Case random_layer_case(std::uint64_t seed, std::uint64_t index);

// What `fuzz` draws: of eight cases one is a layer.
[[nodiscard]] Case fuzz_case(std::uint64_t seed, std::uint64_t index);

// A few cases that between them show every fault of the mutant catalogue; each named by its id.
[[nodiscard]] std::vector<Case> telling_cases();

struct Shrunk {
  Case spec;               // the smallest that still fails; the one given if none smaller does
  std::int64_t steps = 0;  // how often it became smaller
  std::int64_t tries = 0;  // cases tried for that
};

// Makes a failing case smaller as long as `fails` holds: fewer sequences, slots and slices, smaller
// sizes, the plain value of everything else. Greedy: the first smaller case that fails is taken.
// No case is tried twice; ends early when `stop` says so, with the best so far. Every case tried is
// one that a scenario may hold.
[[nodiscard]] Shrunk shrink_case(const Case& spec, const std::function<bool(const Case&)>& fails,
                                 const std::function<bool()>& stop);

}  // namespace lora_bench
