#pragma once

#include <cstdint>
#include <span>
#include <vector>

// The oracle. It includes nothing of src/ and of kernels/, decodes and rounds numbers with its own
// code, and finds every row, lane and column by its own arithmetic, so that a mistake in the code
// under test cannot be repeated here.
namespace lora_bench::reference {

enum class Number : std::uint8_t { kFp32, kBf16, kFp16, kE4m3, kE5m2 };

[[nodiscard]] constexpr bool has_eight_bits(Number number) {
  return number == Number::kE4m3 || number == Number::kE5m2;
}

[[nodiscard]] double decode(Number number, std::uint32_t bits);
// Round to nearest even, as IEEE (overflow to infinity; e4m3: to NaN).
[[nodiscard]] double round_to(Number number, double value);
[[nodiscard]] std::uint32_t encode(Number number, double value);
// Distance between the neighbours of a finite value in the format.
[[nodiscard]] double spacing(Number number, double value);

// The format of each array of a problem; of h as the case asks for it.
struct Numbers {
  Number x = Number::kBf16, a = Number::kBf16, b = Number::kBf16, bias = Number::kBf16;
  Number h = Number::kFp32, y = Number::kBf16;
};
[[nodiscard]] constexpr Numbers all_of(Number number) {
  return {number, number, number, number, number, number};
}

// Of each row, or once for all rows, a scale for every so many columns, 0: of all; none where the
// address is null.
struct RowScales {
  const float* scales = nullptr;
  bool one = false;
  std::int64_t group = 0;
};

// How numbers become numbers of eight bits times a scale: each step is rounded to fp32. scale =
// max(max(max |x|, least_amax) / largest, least_scale), with power_of_two the least power of two
// that is not below that. A number is x / scale, or x times the nearest of 1 / scale, held within
// +-largest, then rounded to nearest even.
struct QuantiserRule {
  Number to = Number::kE4m3;
  bool multiplies = false;
  bool power_of_two = false;
  double least_amax = 0, least_scale = 0;
};

// Of an h that is quantised between the sums: so many lanes have a scale together, 0: all of a row
// of a slice.
struct HiddenQuantiser {
  QuantiserRule rule;
  std::int64_t group = 0;
};

struct Problem {
  bool shrink = true;  // h = x A^T; else h is given
  bool expand = true;  // y (+)= h B^T (+ bias); else h is the result
  Numbers numbers;
  bool scale_at_shrink = true;  // else at expand
  bool add_inputs = true;
  bool own_inputs = false;        // each slice has an x of its own
  bool rank0_bias = false;        // an adapter of rank 0 adds its bias, where there is one
  bool adds_to_h = false;         // of shrink alone: to what h held
  bool zeroes_idle_rows = false;  // the columns of slices, in rows of no adapter or of rank 0
  std::int64_t tokens = 0, in_features = 0, offset_start = 0, x_stride = 0, y_stride = 0;
  std::int64_t slots = 0, max_rank = 0;
  std::vector<std::int64_t> widths;
  std::span<const std::int32_t> adapter_of_token;  // [tokens], -1 = none
  std::span<const std::int64_t> rank;              // [slots]
  std::span<const float> scale;                    // [slots]
  const void* x = nullptr;  // [tokens, x_stride], with own_inputs [slices, tokens, x_stride]
  std::vector<const void*> a, b, bias;  // per slice; bias empty, or null of a slice = none
  // Of weights that are numbers times a scale, else empty: of each slot a scale for every block of
  // so many rows and columns, row by row; 0: of all. A row is a lane of A or an output of B.
  std::vector<const float*> a_scale, b_scale;
  std::int64_t block_rows = 0, block_columns = 0;
  // Of an A that is the columns of a wider one from `first_of_a` on, so many of which the scales
  // are; 0: in_features.
  std::int64_t first_of_a = 0, columns_of_scaled_a = 0;
  // Of an x, or an h that is given, of numbers times a scale. Those of slices that have an x of
  // their own, or of h, follow each other.
  RowScales x_scale, h_scale;
  // Read where the code under test declares an intermediate of eight bits.
  HiddenQuantiser quantiser_of_h;
  // Which row of x each row reads; empty: its own. What the delta of each is multiplied by;
  // empty: 1.
  std::span<const std::int32_t> row_of_x;  // [tokens]
  std::span<const float> factor;           // [tokens]
  const void* h = nullptr;                 // [slices, tokens, max_rank] when !shrink or adds_to_h
  const void* y = nullptr;                 // [tokens, y_stride] before the op
};

// How the bias comes to y: in one sum with delta, or y + bias (before), or y + delta (after it) is
// rounded to the format of y by itself.
enum class BiasAdded : std::uint8_t { kWithDelta, kBefore, kAfter };

// What the code under test declared about its arithmetic (the meaning of each is in ops/backend.h).
struct Arithmetic {
  double unit_roundoff = 0x1p-24;
  std::int64_t shrink_depth = 0, expand_depth = 0;
  Number partial = Number::kFp32;
  std::int64_t partials = 1;
  Number intermediate = Number::kFp32;
  // h is a sum of so many terms, each over a run of K of its own with `partials` of them, each
  // stored as h is, as their sums may be.
  std::int64_t terms_of_h = 1;
  // To the format of B, where B has scales to that of y, before the second product.
  bool casts_h = false;
  bool rounds_delta = false;
  BiasAdded bias_added = BiasAdded::kWithDelta;
  // What y held was never rounded to the format of y, in which it is given here: it, delta and bias
  // are rounded once, together. Bounded, not modelled.
  bool rounds_once = false;

  [[nodiscard]] bool operator==(const Arithmetic&) const = default;
};

// What `expected` models besides real arithmetic.
enum class Rounding : std::uint8_t {
  kBounded,   // nothing is rounded; every rounding of the code under test goes into the bound
  kModelled,  // sums are exact, h (and delta, if declared) is rounded as declared; the bound is 0
};

// Rows of y (expand) or of h (shrink only; columns are slice-major lanes: slice * max_rank + lane).
// Nobody owns a column outside every slice, a lane at or above the rank or of a slice of width 0,
// and a row without adapter or with one of rank 0: there expected = what was there before (y) or 0
// (h), and the bound is 0. Where such rows are zeroed, their columns of slices are owned and 0.
struct Rows {
  std::int64_t columns = 0;
  std::vector<std::int64_t> tokens;  // which rows, as asked
  std::vector<double> expected;      // [rows, columns], before the final rounding
  std::vector<double> bound;  // [rows, columns], e: RN(expected - e) <= got <= RN(expected + e)
  std::vector<std::uint8_t> owned;  // [rows, columns]: the op must write it
  // kModelled: the largest sum of |terms| of an element, in units of the lowest bit that any of its
  // terms has set. Up to 2^24 every order of fp32 additions is exact; above, the exact level proves
  // nothing. Narrow partials allow less (see exact_limit).
  double largest_partial = 0;
};

// Real arithmetic in fp64, and the elementwise bound beside it at the same cost. On so many threads
// (0 = all cores), which change no bit of it.
[[nodiscard]] Rows evaluate(const Problem& problem, const Arithmetic& arithmetic,
                            std::span<const std::int64_t> tokens,
                            Rounding rounding = Rounding::kBounded, std::int64_t threads = 0);

// Up to this largest_partial all sums of code with this arithmetic are exact.
[[nodiscard]] double exact_limit(const Arithmetic& arithmetic);

// Seconds of one fp32 matrix product (m x k) (k x n) with all cores: the ceiling of the CPU.
[[nodiscard]] double product_seconds(std::int64_t m, std::int64_t n, std::int64_t k);

}  // namespace lora_bench::reference
