#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/reference.h"

namespace lora_bench::reference {

// A whole layer, not divided: y = x W^T (+ bias), and to it what its adapters add. Of `lora`, the
// adapters' part (shrink and expand), y and add_inputs are not read.
struct Layer {
  Problem lora;
  const void* w = nullptr;     // [y_stride, in_features]
  const void* bias = nullptr;  // [y_stride], null = none
  Number w_number = Number::kBf16, bias_number = Number::kBf16;
  // At the end y = output_scale * soft_cap * tanh(y / soft_cap), of a y that is stored before; no
  // cap where it is 0, and nothing at all where the scale is 1 too.
  double soft_cap = 0, output_scale = 1;
};

// What the code under test declared, and how it comes to its sums.
struct LayerArithmetic {
  Arithmetic lora;
  double base_unit_roundoff = 0x1p-24;
  std::int64_t base_depth = 0;  // additions on the longest path of a sum of one term
  // To the number of y, before what the adapters add comes to it.
  bool base_rounded = true;
  // y is a sum of so many terms, each of an equal run of K, each rounded to the number of y before
  // they are added.
  std::int64_t terms = 1;
  // The sum of the terms is rounded to the number of y after each of them, in any order; else it is
  // made in fp32 and rounded once.
  bool rounds_each_sum = false;
  // Which terms hold what the adapters add: each its own share (of x), or for an equal run of
  // columns the term of that number, all of it.
  bool delta_at_once = false;
  // The terms are not added: each is a result of its own.
  bool terms_apart = false;
  // Sums are exact and every rounding is modelled; the bound is 0. For operands that are integers.
  bool exact = false;
};

struct LayerRows {
  Rows rows;                   // as of an expand; owned is where adapters may add
  std::vector<double> base;    // as long: without adapters
  double largest_partial = 0;  // as that of Rows, the base's sums in it; where exact
  // How many results there are, one after the other, each [rows, columns]: of terms that stay
  // apart one for each.
  std::int64_t results = 1;

  // Where the element of a row of `rows` and of a column of the whole y stands in the result of a
  // term.
  [[nodiscard]] std::size_t place(std::int64_t term, std::size_t row, std::int64_t column) const {
    const std::size_t before = results > 1 ? static_cast<std::size_t>(term) : 0;
    return (before * rows.tokens.size() + row) * static_cast<std::size_t>(rows.columns) +
           static_cast<std::size_t>(column);
  }
};

[[nodiscard]] LayerRows evaluate_layer(const Layer& layer, const LayerArithmetic& arithmetic,
                                       std::span<const std::int64_t> tokens);

}  // namespace lora_bench::reference
