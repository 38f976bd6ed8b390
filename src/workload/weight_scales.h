#pragma once

#include <cstdint>
#include <functional>

#include "workload/fill_sizes.h"
#include "workload/tensors.h"

namespace lora_bench {

// How A and B of eight bits and their scales are drawn. Numbers are those that the format holds
// without loss in an exact fill, subnormal ones of every second slot among them, up to its largest
// in a bounded one and of the size of 1 else; what makes them as large as the other operands need
// them stands in the scales. These are powers of two in an exact fill, another one for each
// neighbouring slot, slice and block, so that any that is taken for another shows; else reals of
// full mantissa. A fine fill has scales of 12 bits for one operand, odd ones, which fp16 and what
// is narrower round, and one power of two for the others.

// The largest of an exact fill over the least, of which none is 1.
constexpr double kExactScaleSpread = 8;
constexpr double kLargestExactScale = 4;
constexpr double kMeanExactScale = 2.5;
// Of the odd integers that fine scales are, over 2^bits; and what other scales are there.
constexpr int kFineScaleBits = 12;
constexpr float kPlainScale = 2;
// The largest of another fill, over what weights without scales are times.
constexpr double kLargestDrawnScale = 1.25;

// Of the numbers of A or B of one slot as they are stored.
[[nodiscard]] ElementLaw stored_law(const Problem& problem, const FillSizes& sizes, Fill fill,
                                    Role weights, std::int64_t slot);

// Of the numbers of an x of eight bits as they are stored, of one row of it.
[[nodiscard]] ElementLaw stored_law_of_x(const Problem& problem, const FillSizes& sizes, Fill fill,
                                         std::int64_t x_row);

// Its scales; those of no row that holds numbers are NaN, where a row has some of its own.
// `numbers_of` says whose numbers a row has: its own, those of another one, or -1: none.
[[nodiscard]] HostTensor draw_scales_of_x(
    const Problem& problem, const FillSizes& sizes, Fill fill, std::uint64_t seed,
    const Operand& operand, const std::function<std::int64_t(std::int64_t token)>& numbers_of);

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
