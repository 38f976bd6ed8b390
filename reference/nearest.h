#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "reference/reference.h"

namespace lora_bench::reference {

// decode and round_to of one format, for loops over millions of elements: bit for bit the same.
class Format {
 public:
  explicit Format(Number number);

  [[nodiscard]] double decode(std::uint32_t bits) const {
    return values_ == nullptr ? static_cast<double>(std::bit_cast<float>(bits)) : values_[bits];
  }
  // Whether the value is no further from 0 than where finite numbers end: below half a step beyond
  // the largest.
  [[nodiscard]] bool holds(double value) const { return std::fabs(value) < past_finite_; }
  [[nodiscard]] double nearest(double value) const {
    const double magnitude = std::fabs(value);
    if (!(magnitude < past_finite_)) {
      return round_to(number_, value);
    }
    // 1.5 * 2^52 times the distance between neighbours.
    const std::uint64_t field =
        std::max(std::bit_cast<std::uint64_t>(magnitude) >> 52U, least_field_);
    const auto shift = std::bit_cast<double>((field + to_shift_) << 52U | std::uint64_t{1} << 51U);
    return std::copysign((magnitude + shift) - shift, value);
  }

 private:
  Number number_;
  const double* values_;  // null of fp32
  double past_finite_;
  std::uint64_t least_field_, to_shift_;
};

}  // namespace lora_bench::reference
