#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "workload/tensors.h"

namespace lora_bench {

// One step that can be launched, and steps made from it whose results follow from its own.
struct Step {
  Problem problem;
  Tensors tensors;
};

// The given rows, in that order, as a batch of their own.
[[nodiscard]] Step select_rows(const Step& step, std::span<const std::int64_t> tokens);

// Adapter i moves to slot (i + 1) mod slots, with its weights, rank and scale.
[[nodiscard]] Step relabel_adapters(const Step& step);

// Everything that the result is linear in together is doubled: x (or h), y and bias.
[[nodiscard]] Step double_inputs(const Step& step);

// Numbers where the inputs hold NaN because nobody may read them.
[[nodiscard]] Step fill_unused(const Step& step);

// One slice alone, at its place in y.
[[nodiscard]] Step single_slice(const Step& step, std::int64_t slice);

// The same adapters, other rows: every token takes the adapter of the next one.
[[nodiscard]] Problem rotate_adapters(const Problem& problem);
[[nodiscard]] Problem without_adapters(const Problem& problem);

[[nodiscard]] std::vector<std::int64_t> all_rows(const Problem& problem);

}  // namespace lora_bench
