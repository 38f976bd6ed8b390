#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "scenario/case.h"
#include "workload/array_shape.h"
#include "workload/problem.h"

namespace lora_bench {

// What op quantise makes of x: everything that is neither an address nor a number of x.
struct QuantiseProblem : QuantiserRule {
  std::int64_t rows = 0, columns = 0;
  std::int64_t stride = 0;  // of x; what it makes lies without gaps
  Dtype from = Dtype::kBf16;
  ScalesOfRows scales;
  bool scales_given = false;

  [[nodiscard]] std::int64_t scale_count() const { return scales.rows * scales.across; }
  [[nodiscard]] std::int64_t scale_at(std::int64_t row, std::int64_t column) const {
    return scales.at(row, rows, column);
  }
  [[nodiscard]] bool operator==(const QuantiseProblem&) const = default;
};

struct QuantiseStep {
  QuantiseProblem problem;
  std::uint64_t seed = 0;  // of the numbers
};
[[nodiscard]] QuantiseStep draw_quantise(const Case& spec, const Problem& problem);

// How it converts, beyond the format and the sizes, as rows tell it: "scales given, multiply".
[[nodiscard]] std::string quantiser_text(const QuantiseProblem& problem);

// x [rows, stride], and the scales where they are given; codes [rows, columns], and the scales
// where they are made.
[[nodiscard]] ArrayShapes inputs_of(const QuantiseProblem& problem);
[[nodiscard]] ArrayShapes outputs_of(const QuantiseProblem& problem);

// The bytes of arrays, in that order.
using QuantiseArrays = std::vector<std::vector<std::byte>>;

// What stands in the gaps of x: NaN, or finite numbers above all of x. A maximum swallows NaN, so
// that who reads a gap shows by the second alone.
enum class XGaps : std::uint8_t { kNan, kHuge };

// Numbers of every size, with what tells quantisers apart: ties between codes, subnormal ones too,
// numbers where a division and a product with the inverse end in different codes; groups whose
// largest number is negative, stands last, has a scale that is a power of two or just above one, is
// far beyond what a format holds, or is so small that the scale is held up; groups of zeros, and
// -0. The one group of a tensor is another kind for each of kQuantiseDraws seeds that follow each
// other. Scales that are given hold every number, or half of that, or next to nothing or
// everything.
constexpr std::uint64_t kQuantiseDraws = 6;
[[nodiscard]] QuantiseArrays draw_quantise_inputs(const QuantiseProblem& problem,
                                                  std::uint64_t seed, XGaps gaps);
// The same with one number of x negated, of which the code is another one; with one scale changed:
// the one that is given, or the one that follows from a number of x that became the largest.
[[nodiscard]] QuantiseArrays with_one_number_changed(const QuantiseProblem& problem,
                                                     QuantiseArrays inputs, std::uint64_t secret);
[[nodiscard]] QuantiseArrays with_one_scale_changed(const QuantiseProblem& problem,
                                                    QuantiseArrays inputs, std::uint64_t secret);
// The same with x times 2^-3; x of zeros.
[[nodiscard]] QuantiseArrays smaller(const QuantiseProblem& problem, QuantiseArrays inputs);
[[nodiscard]] QuantiseArrays of_zeros(const QuantiseProblem& problem, QuantiseArrays inputs);

}  // namespace lora_bench
