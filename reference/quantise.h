#pragma once

#include <cstdint>
#include <vector>

#include "reference/reference.h"

namespace lora_bench::reference {

// The scale of numbers of which the largest magnitude is `amax`.
[[nodiscard]] double scale_for(const QuantiserRule& rule, double amax);
// The number of eight bits that x with that scale becomes.
[[nodiscard]] double code_for(const QuantiserRule& rule, double x, double scale);

// x [rows, columns], a row every `stride` elements, with a scale for each row and run of `group`
// columns, or with `one_scale` for all, made or given.
struct Quantiser {
  QuantiserRule rule;
  Number from = Number::kBf16;
  std::int64_t rows = 0, columns = 0, stride = 0, group = 0;
  bool one_scale = false;
  const void* x = nullptr;
  const float* given = nullptr;  // null: scales are made
};

struct Quantised {
  std::vector<std::uint8_t> codes;  // [rows, columns]
  std::vector<float> scales;        // [rows or 1, groups of a row]
};

[[nodiscard]] Quantised quantise(const Quantiser& quantiser);

}  // namespace lora_bench::reference
