#pragma once

#include <cstdint>
#include <vector>

#include "reference/reference.h"

namespace lora_bench::reference {

using Buffer = std::vector<double>;

[[nodiscard]] inline std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

// Below this fp32 code may flush to zero.
constexpr double kSmallestFp32 = 0x1p-126;
constexpr double kUnitFp32 = 0x1p-24;

// What one rounding to the format can lose: relative, and absolute where numbers are subnormal.
struct Roundoff {
  double relative = 0, absolute = 0;
};
[[nodiscard]] Roundoff roundoff(Number number);

// gamma_n = n u / (1 - n u): what n roundings of relative size u can add up to.
[[nodiscard]] double gamma(double roundings, double unit);

// A bound times a size; nothing is nothing, even of a bound without end.
[[nodiscard]] inline double share(double bound, double size) {
  return size == 0 ? 0 : bound * size;
}

// The value of the lowest bit that is set; infinity for 0, which restricts nothing.
[[nodiscard]] double lowest_bit(double value);
[[nodiscard]] double lowest_bit(const double* values, std::int64_t count);

// The value of every pattern of a format of 8 or 16 bits.
[[nodiscard]] const double* decoded(Number number);

// Elements first ... first + count - 1 of an array.
void read(Number number, const void* array, std::int64_t first, std::int64_t count, double* out);

// Multiplies rows `first` ... `first + rows - 1` of one adapter, of which `values` has the first
// `columns` elements each from `first_column` on, with their scales. The adapter has so many rows
// and columns in all.
struct ScaledRows {
  const float* scales = nullptr;
  std::int64_t adapter = 0, all_rows = 0, all_columns = 0, first = 0, rows = 0, columns = 0;
  std::int64_t first_column = 0;
};
void multiply_by_scales(const Problem& problem, const ScaledRows& at, Buffer& values);

// The format that h is cast to where that is declared.
[[nodiscard]] inline Number number_of_cast(const Problem& problem) {
  return problem.b_scale.empty() ? problem.numbers.b : problem.numbers.y;
}

// Of each value that is not 0 at least `least`.
[[nodiscard]] Buffer magnitudes(const Buffer& values, double least = 0);

// The least magnitude with which an operand counts in the error of a sum. Tensor cores align the
// products of a sum by the exponents of their operands, and cut what lies below the largest; a
// subnormal fp16 number has the exponent of the least normal one there, however small it is.
[[nodiscard]] double least_magnitude(Number number, const Arithmetic& arithmetic);

}  // namespace lora_bench::reference
