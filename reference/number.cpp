#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "reference/nearest.h"
#include "reference/reference.h"
#include "reference/rounding.h"

namespace lora_bench::reference {
namespace {

struct Layout {
  int stored_bits;     // of the significand, without the leading one
  int least_exponent;  // of a normal number
  double largest;      // finite
  bool has_infinity;   // else what is too large becomes NaN
  std::uint32_t sign;  // the sign bit
  std::uint32_t nan;   // a quiet NaN
};

const Layout& layout_of(Number number) {
  static constexpr std::array<Layout, 5> kLayouts{{
      {23, -126, 0x1.fffffep127, true, 0x80000000U, 0x7fc00000U},
      {7, -126, 0x1.fep127, true, 0x8000U, 0x7fc0U},
      {10, -14, 65504.0, true, 0x8000U, 0x7e00U},
      {3, -6, 448.0, false, 0x80U, 0x7fU},
      {2, -14, 57344.0, true, 0x80U, 0x7eU},
  }};
  return kLayouts.at(static_cast<std::size_t>(number));
}

double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52U);
}

// Distance between neighbours of the format around `magnitude`.
double spacing(const Layout& format, double magnitude) {
  const int exponent = static_cast<int>(std::bit_cast<std::uint64_t>(magnitude) >> 52U) - 1023;
  return power_of_two(std::max(exponent, format.least_exponent) - format.stored_bits);
}

double decode_slowly(Number number, std::uint32_t bits) {
  const Layout& format = layout_of(number);
  const double sign = (bits & format.sign) != 0 ? -1.0 : 1.0;
  const std::uint32_t magnitude = bits & (format.sign - 1U);
  const int field = static_cast<int>(magnitude >> static_cast<unsigned>(format.stored_bits));
  const std::uint32_t one = 1U << static_cast<unsigned>(format.stored_bits);
  const double fraction = static_cast<double>(magnitude & (one - 1U)) / one;
  const int last_field = static_cast<int>((format.sign - 1U) / one);
  if (format.has_infinity && field == last_field) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  if (!format.has_infinity && magnitude == format.sign - 1U) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (field == 0) {
    return sign * std::ldexp(fraction, format.least_exponent);
  }
  return sign * std::ldexp(1.0 + fraction, field - 1 + format.least_exponent);
}

template <Number kNumber, std::size_t kPatterns>
const std::array<double, kPatterns>& table() {
  static const auto kValues = [] {
    std::array<double, kPatterns> values{};
    for (std::size_t pattern = 0; pattern < kPatterns; ++pattern) {
      values[pattern] = decode_slowly(kNumber, static_cast<std::uint32_t>(pattern));
    }
    return values;
  }();
  return kValues;
}

template <Number kNumber, std::size_t kPatterns>
double decode_by_table(std::uint32_t bits) {
  return table<kNumber, kPatterns>()[bits % kPatterns];
}

}  // namespace

const double* decoded(Number number) {
  switch (number) {
    case Number::kBf16:
      return table<Number::kBf16, 65536>().data();
    case Number::kFp16:
      return table<Number::kFp16, 65536>().data();
    case Number::kE4m3:
      return table<Number::kE4m3, 256>().data();
    case Number::kE5m2:
      return table<Number::kE5m2, 256>().data();
    case Number::kFp32:
      break;
  }
  throw std::logic_error("number format without a table");
}

double decode(Number number, std::uint32_t bits) {
  switch (number) {
    case Number::kFp32:
      return static_cast<double>(std::bit_cast<float>(bits));
    case Number::kBf16:
      return decode_by_table<Number::kBf16, 65536>(bits);
    case Number::kFp16:
      return decode_by_table<Number::kFp16, 65536>(bits);
    case Number::kE4m3:
      return decode_by_table<Number::kE4m3, 256>(bits);
    case Number::kE5m2:
      return decode_by_table<Number::kE5m2, 256>(bits);
  }
  throw std::logic_error("number format outside the enumeration");
}

Format::Format(Number number)
    : number_(number),
      values_(number == Number::kFp32 ? nullptr : decoded(number)),
      past_finite_(layout_of(number).largest + spacing(number, layout_of(number).largest) / 2),
      least_field_(static_cast<std::uint64_t>(layout_of(number).least_exponent + 1023)),
      to_shift_(static_cast<std::uint64_t>(52 - layout_of(number).stored_bits)) {}

double spacing(Number number, double value) { return spacing(layout_of(number), std::fabs(value)); }

double round_to(Number number, double value) {
  const Layout& format = layout_of(number);
  const double magnitude = std::fabs(value);
  const double half_step = spacing(format, format.largest) / 2;
  // The largest finite number is odd where infinity follows it, so the tie goes up; in e4m3 it is
  // even, so the tie stays.
  if (format.has_infinity && magnitude >= format.largest + half_step) {
    return std::copysign(std::numeric_limits<double>::infinity(), value);
  }
  if (std::isnan(value) || magnitude > format.largest + half_step) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  // Adding 1.5 * 2^52 steps leaves no bit below one step: the processor's own round to nearest even
  // does the rest.
  const double shift = 0x1.8p52 * spacing(format, magnitude);
  return std::copysign((magnitude + shift) - shift, value);
}

std::uint32_t encode(Number number, double value) {
  const Layout& format = layout_of(number);
  const double rounded = round_to(number, value);
  if (std::isnan(rounded)) {
    return format.nan;
  }
  const std::uint32_t sign = std::signbit(rounded) ? format.sign : 0U;
  const std::uint32_t one = 1U << static_cast<unsigned>(format.stored_bits);
  const double magnitude = std::fabs(rounded);
  if (std::isinf(magnitude)) {
    return sign | ((format.sign - 1U) & ~(one - 1U));
  }
  const double step = spacing(format, magnitude);
  const auto steps = static_cast<std::uint32_t>(magnitude / step);
  const int field = std::ilogb(step) + format.stored_bits - format.least_exponent;
  // Steps of a normal number carry the leading one, which adds the missing 1 to the field.
  return sign | (static_cast<std::uint32_t>(field) * one + steps);
}

}  // namespace lora_bench::reference
