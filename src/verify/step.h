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

// What h is multiplied with, or where h is the result what x is, and all that is added, as large as
// fp16 holds: some results are larger than that.
[[nodiscard]] Step beyond_fp16(const Step& step);

// Numbers where the inputs hold NaN because nobody may read them.
[[nodiscard]] Step fill_unused(const Step& step);

// One slice alone, at its place in y.
[[nodiscard]] Step single_slice(const Step& step, std::int64_t slice);

// Shrink alone, and expand alone of the h that it left.
[[nodiscard]] Step shrink_half(const Step& step);
[[nodiscard]] Step expand_half(const Step& step, std::span<const std::byte> h);

// Room for so many more lanes, which hold NaN, and so many more elements of K, numbers of their row
// again, every second one with the other sign.
[[nodiscard]] Step widen(const Step& step, std::int64_t lanes, std::int64_t features);

// The same step, of which one number in four of every input is that of `other`, of small inputs
// all.
[[nodiscard]] Tensors mixed(const Step& step, const Tensors& other, std::uint64_t seed);

// The inputs of this name, "a" of all slices or "scale", become those of `from`.
void take_input(const Problem& problem, std::string_view input, const Tensors& from, Tensors& into);

// The same adapters, other rows: every token takes the adapter of the next one.
[[nodiscard]] Problem rotate_adapters(const Problem& problem);
[[nodiscard]] Problem without_adapters(const Problem& problem);
// Every slot in turn; all rows that have an adapter with the first of them; every slot with another
// rank, 1 at least.
[[nodiscard]] Problem with_every_slot(const Problem& problem);
[[nodiscard]] Problem with_one_adapter(const Problem& problem);
[[nodiscard]] Problem with_other_ranks(const Problem& problem);

[[nodiscard]] std::vector<std::int64_t> all_rows(const Problem& problem);

}  // namespace lora_bench
