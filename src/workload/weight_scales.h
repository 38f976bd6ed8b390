#pragma once

#include <cstdint>
#include <functional>

#include "workload/fill_sizes.h"
#include "workload/tensors.h"

namespace lora_bench {

// How operands of eight bits and their scales are drawn. Numbers are those that the format holds
// without loss in an exact fill, subnormal ones of every second slot or row among them, up to its
// largest in a bounded one and of the size of 1 else; what makes them as large as the other
// operands need them stands in the scales. These are powers of two in an exact fill, another one
// for each neighbouring slot, row, slice and block, so that any that is taken for another shows;
// else reals of full mantissa. A fine fill has scales of 12 bits for one operand, odd ones, which
// fp16 and what is narrower round, and one power of two for the others.

// The largest of an exact fill over the least, of which none is 1.
constexpr double kExactScaleSpread = 8;
constexpr double kLargestExactScale = 4;
constexpr double kMeanExactScale = 2.5;
// Of the odd integers that fine scales are, over 2^bits; and what other scales are there.
constexpr int kFineScaleBits = 12;
constexpr float kPlainScale = 2;
// The largest of another fill, over what weights without scales are times.
constexpr double kLargestDrawnScale = 1.25;

// Of the numbers as they are stored: of A or B those of a slot, of x or h those of a row, as
// Problem::row_of_activations has it.
[[nodiscard]] ElementLaw stored_law(const Problem& problem, const FillSizes& sizes, Fill fill,
                                    Role role, std::int64_t of);

// Whose numbers a row of activations has, its own or those of another one, and in how many columns.
struct NumbersOfRow {
  std::int64_t token = 0, columns = 0;
};

// The scales of activations; those of no column that holds numbers are NaN, where a row has some of
// its own.
[[nodiscard]] HostTensor draw_scales_of_rows(
    const Problem& problem, const FillSizes& sizes, Fill fill, std::uint64_t seed,
    const Operand& operand, const std::function<NumbersOfRow(std::int64_t token)>& numbers_of);

// Scales of one slice; those of no lane that holds numbers are NaN. `lanes` says how many a slot
// has.
[[nodiscard]] HostTensor draw_scales(const Problem& problem, const FillSizes& sizes, Fill fill,
                                     std::uint64_t seed, const Operand& operand,
                                     const std::function<std::int64_t(std::int64_t slot)>& lanes);

// How much further apart in size, because of scales, the terms of one sum over K and of one over
// the rank may be in an exact fill.
[[nodiscard]] double exact_spread_over_k(const Problem& problem);
[[nodiscard]] double exact_spread_over_lanes(const Problem& problem);

}  // namespace lora_bench
