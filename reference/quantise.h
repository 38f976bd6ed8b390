#pragma once

#include <cstdint>
#include <vector>

#include "reference/reference.h"

namespace lora_bench::reference {

// x [rows, columns], a row every `stride` elements, as numbers of eight bits with a scale for each
// row and run of `group` columns, or with `one_scale` for all. Every step below is rounded to fp32:
// scale = max(max(max |x|, least_amax) / largest, least_scale), or what is given; with power_of_two
// the least power of two that is not below that. A number is x / scale, or x times the nearest of
// 1 / scale, held within +-largest, then rounded to nearest even.
struct Quantiser {
  Number from = Number::kBf16, to = Number::kE4m3;
  std::int64_t rows = 0, columns = 0, stride = 0, group = 0;
  bool one_scale = false;
  bool multiplies = false;
  bool power_of_two = false;
  double least_amax = 0, least_scale = 0;
  const void* x = nullptr;
  const float* given = nullptr;  // null: scales are made
};

struct Quantised {
  std::vector<std::uint8_t> codes;  // [rows, columns]
  std::vector<float> scales;        // [rows or 1, groups of a row]
};

[[nodiscard]] Quantised quantise(const Quantiser& quantiser);

}  // namespace lora_bench::reference
