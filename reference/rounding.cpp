#include "reference/rounding.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace lora_bench::reference {

Roundoff roundoff(Number number) {
  switch (number) {
    case Number::kFp32:
      return {kUnitFp32, kSmallestFp32};
    case Number::kBf16:
      return {0x1p-8, kSmallestFp32};
    case Number::kFp16:
      return {0x1p-11, 0x1p-25};
    case Number::kE4m3:
      return {0x1p-4, 0x1p-10};
    case Number::kE5m2:
      return {0x1p-3, 0x1p-17};
  }
  return {};
}

double gamma(double roundings, double unit) {
  const double product = roundings * unit;
  return product < 1 ? product / (1 - product) : std::numeric_limits<double>::infinity();
}

double lowest_bit(double value) {
  if (value == 0 || !std::isfinite(value)) {
    return std::numeric_limits<double>::infinity();
  }
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const std::uint64_t significand = (bits & 0xfffffffffffffULL) | 0x10000000000000ULL;
  const int below = 52 - std::countr_zero(significand);
  const auto field = static_cast<int>(bits >> 52U & 0x7ffU);
  if (field > below) {
    return std::bit_cast<double>(static_cast<std::uint64_t>(field - below) << 52U);
  }
  return std::ldexp(1.0, std::ilogb(value) - below);
}

double lowest_bit(const double* values, std::int64_t count) {
  double lowest = std::numeric_limits<double>::infinity();
  for (std::int64_t i = 0; i < count; ++i) {
    lowest = std::min(lowest, lowest_bit(values[i]));
  }
  return lowest;
}

void read(Number number, const void* array, std::int64_t first, std::int64_t count, double* out) {
  if (number == Number::kFp32) {
    std::copy_n(static_cast<const float*>(array) + first, count, out);
  } else if (number == Number::kE4m3 || number == Number::kE5m2) {
    const auto* bits = static_cast<const std::uint8_t*>(array) + first;
    std::transform(bits, bits + count, out,
                   [values = decoded(number)](std::uint8_t b) { return values[b]; });
  } else {
    const auto* bits = static_cast<const std::uint16_t*>(array) + first;
    std::transform(bits, bits + count, out,
                   [values = decoded(number)](std::uint16_t b) { return values[b]; });
  }
}

void multiply_by_scales(const Problem& problem, const ScaledRows& at_rows, Buffer& values) {
  const auto blocks = [](std::int64_t all, std::int64_t of_block) {
    return of_block == 0 ? 1 : (all - 1) / of_block + 1;
  };
  const auto block_of = [](std::int64_t index, std::int64_t of_block) {
    return of_block == 0 ? 0 : index / of_block;
  };
  const std::int64_t across = blocks(at_rows.all_columns, problem.block_columns);
  const std::int64_t down = blocks(at_rows.all_rows, problem.block_rows);
  const float* of_adapter = at_rows.scales + at_rows.adapter * down * across;
  for (std::int64_t row = 0; row < at_rows.rows; ++row) {
    const float* of_row = of_adapter + block_of(at_rows.first + row, problem.block_rows) * across;
    double* numbers = values.data() + row * at_rows.columns;
    for (std::int64_t column = 0; column < at_rows.columns; ++column) {
      numbers[column] *= static_cast<double>(
          of_row[block_of(at_rows.first_column + column, problem.block_columns)]);
    }
  }
}

Buffer magnitudes(const Buffer& values, double least) {
  Buffer result(values.size());
  std::transform(values.begin(), values.end(), result.begin(),
                 [least](double v) { return v == 0 ? 0 : std::max(std::fabs(v), least); });
  return result;
}

double least_magnitude(Number number, const Arithmetic& arithmetic) {
  constexpr double kLeastNormalFp16 = 0x1p-14;
  const bool aligns = arithmetic.unit_roundoff > kUnitFp32;
  return number == Number::kFp16 && aligns ? kLeastNormalFp16 : 0;
}

}  // namespace lora_bench::reference
