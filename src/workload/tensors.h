#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "workload/problem.h"

namespace lora_bench {

// What the values are for; see docs/verifying.md and docs/measuring.md.
enum class Fill : std::uint8_t {
  kExact,  // dense signed integers (times a power of two): any order of summation gives the same
           // bits
  kFineX,  // kExact of so few and small numbers that the scales of an x of eight bits can have
  kFineH,  // a bit more than fp16 holds; the same of those of a given h, of A and of B. All other
  kFineA,  // scales are one power of two
  kFineB,
  kBounded,  // reals of full mantissa, sized so that the delta is not hidden by y0
  kUneven,   // kBounded as activations and trained weights are: zeros, -0, rows and lanes far apart
             // in size, outliers, rows that repeat each other; see workload/uneven.h
  kUnevenNarrow,  // kUneven without what is large, for sums in types that could not hold it
  kTiming,        // reals of full mantissa, sized so that repeated accumulation stays finite
};

[[nodiscard]] constexpr bool is_uneven(Fill fill) {
  return fill == Fill::kUneven || fill == Fill::kUnevenNarrow;
}
[[nodiscard]] constexpr bool is_fine(Fill fill) {
  return fill >= Fill::kFineX && fill <= Fill::kFineB;
}
// Whether all sums of a fill are exact in any order.
[[nodiscard]] constexpr bool is_exact(Fill fill) { return fill == Fill::kExact || is_fine(fill); }
// Whether it is the scales of this operand, or the operand that these scales are of, that are fine.
[[nodiscard]] constexpr bool is_fine_of(Fill fill, Role role) {
  return (fill == Fill::kFineX && (role == Role::kX || role == Role::kXScale)) ||
         (fill == Fill::kFineH && (role == Role::kH || role == Role::kHScale)) ||
         (fill == Fill::kFineA && (role == Role::kA || role == Role::kAScale)) ||
         (fill == Fill::kFineB && (role == Role::kB || role == Role::kBScale));
}
// The fine fills of the scales that a step has.
[[nodiscard]] std::vector<Fill> fine_fills(const Problem& problem);

// Bytes of which every dtype is a number: about 12 in fp32 and bf16, 2.6 in fp16.
constexpr std::byte kNumberByte{0x41};
// Of which fp32 is 6e19, beyond all that is drawn: a maximum swallows NaN, but not this.
constexpr std::byte kHugeByte{0x60};

struct HostTensor {
  Dtype dtype = Dtype::kFp32;
  std::int64_t elements = 0;
  std::vector<std::byte> data;
};

// All operands of one step in host memory, rounded to their dtypes. Unused slots, lanes at or
// above an adapter's rank, and h lanes likewise hold NaN unless the fill is kTiming, so that a
// read of them shows; so does y where the op overwrites it, each element another NaN, but in an
// uneven fill: there it holds numbers, which nothing may come of either. Where the op adds to y,
// columns of y outside every slice and rows without adapter hold ordinary values.
struct Tensors {
  Fill fill = Fill::kExact;
  HostTensor x, h, y, x_scale, h_scale, factor;
  std::vector<HostTensor> a, b, bias, a_scale, b_scale;
  std::vector<float> scale;  // [slots]; powers of two that differ from 1 where it is exact
  std::byte gap{0xFF};       // every byte that a layout leaves between elements: NaN, or a number
  std::byte scratch{0xFF};   // every byte of an h that is not given and of the workspace before a
                             // launch: NaN, or numbers in an uneven fill

  [[nodiscard]] HostTensor& of(const Operand& operand);
  [[nodiscard]] const HostTensor& of(const Operand& operand) const;
};

// Without numbers, and with room for each slice's.
[[nodiscard]] Tensors empty_tensors(const Problem& problem, Fill fill);

// Deterministic by (seed, tensor, index) for any number of threads (0 = all cores). `problem`
// supplies ranks, so that two problems with one batch permuted draw the same adapters.
[[nodiscard]] Tensors draw_tensors(const Problem& problem, Fill fill, std::uint64_t seed,
                                   int threads = 0);

// Estimate without allocating, for `plan` and for refusing what cannot fit.
[[nodiscard]] std::int64_t tensor_bytes(const Problem& problem);

}  // namespace lora_bench
