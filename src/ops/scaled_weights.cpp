#include "ops/scaled_weights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "core/dtype.h"

namespace lora_bench {

namespace {

// Multiplies numbers of a row from column `first` on with the scales of the row, of which each is
// of so many columns.
void multiply_runs(const float* of_row, std::int64_t columns, std::int64_t first,
                   std::span<float> numbers) {
  for (std::size_t begin = 0; begin < numbers.size();) {
    const std::int64_t run = (first + static_cast<std::int64_t>(begin)) / columns;
    const auto end =
        std::min(numbers.size(), static_cast<std::size_t>((run + 1) * columns - first));
    for (const float scale = of_row[run]; begin < end; ++begin) {
      numbers[begin] *= scale;
    }
  }
}

}  // namespace

void read_weights(const Problem& problem, const Operands& operands, const RowOfWeights& row,
                  std::int64_t first, std::int64_t count, float* to) {
  if (count == 0) {
    return;
  }
  const bool of_a = row.weights == Role::kA;
  const auto slice = static_cast<std::size_t>(row.slice);
  const Dtype dtype = problem.dtype[row.weights];
  const std::int64_t at = of_a ? problem.a_at(row.slice, row.slot, row.rank, row.row)
                               : problem.b_at(row.slice, row.slot, row.row);
  const auto* stored = static_cast<const std::byte*>((of_a ? operands.a : operands.b)[slice]);
  const std::span<float> values(to, static_cast<std::size_t>(count));
  decode(dtype, stored + (at + first) * size_bytes(dtype), values);
  if (!problem.has_scaled_weights()) {
    return;
  }
  const ScaleBlocks blocks = problem.scales_of(row.weights, row.slice);
  const auto* scales =
      static_cast<const float*>((of_a ? operands.a_scale : operands.b_scale)[slice]);
  multiply_runs(scales + blocks.at(row.slot, row.row, 0), blocks.columns, first, values);
}

namespace {

// Numbers of a row of activations from `first` on, which have scales.
void multiply_by_scales(const Problem& problem, const void* scales, std::int64_t row,
                        std::int64_t first, std::span<float> numbers) {
  const ScalesOfRows blocks = problem.scales_of_rows();
  multiply_runs(static_cast<const float*>(scales) + blocks.at(row, problem.tokens, 0),
                blocks.columns, first, numbers);
}

}  // namespace

void read_x(const Problem& problem, const Operands& operands, std::int64_t slice,
            std::int64_t token, std::int64_t first, std::int64_t count, float* to) {
  const Dtype dtype = problem.dtype[Role::kX];
  const std::span<float> numbers(to, static_cast<std::size_t>(count));
  const std::int64_t at = operands.x_row(problem, slice, token) * problem.x_stride +
                          first * problem.layout.x_column_stride;
  const std::int64_t stride = problem.layout.x_column_stride;
  if (stride == 1) {
    decode(dtype, static_cast<const std::byte*>(operands.x) + at * size_bytes(dtype), numbers);
  }
  for (std::int64_t index = 0; index < count && stride != 1; ++index) {
    to[index] = load(dtype, operands.x, at + index * stride);
  }
  if (problem.has_scaled_x()) {
    multiply_by_scales(problem, operands.x_scale, problem.row_of_activations(slice, token), first,
                       numbers);
  }
}

float scale_for(const QuantiserRule& rule, float amax) {
  const float held = std::max(amax, rule.least_amax);
  const float scale =
      std::max(held / static_cast<float>(largest_finite(rule.to)), rule.least_scale);
  if (!rule.power_of_two) {
    return scale;
  }
  constexpr std::uint32_t kFraction = 0x7fffff;
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(scale) + kFraction) & ~kFraction);
}

void convert_by(const QuantiserRule& rule, float scale, std::span<float> x) {
  const auto largest = static_cast<float>(largest_finite(rule.to));
  const float inverse = 1 / scale;
  for (float& number : x) {
    const float converted = rule.convert == Convert::kDivide ? number / scale : number * inverse;
    number = std::clamp(converted, -largest, largest);
  }
}

void quantise_lanes(const HiddenQuantiser& quantiser, std::span<float> lanes) {
  const std::size_t group =
      quantiser.group > 0 ? static_cast<std::size_t>(quantiser.group) : lanes.size();
  std::vector<std::byte> codes(std::min(group, lanes.size()));
  for (std::size_t first = 0; first < lanes.size(); first += group) {
    const std::span<float> run = lanes.subspan(first, std::min(group, lanes.size() - first));
    float amax = 0;
    for (const float value : run) {
      amax = std::max(amax, std::fabs(value));
    }
    const float scale = scale_for(quantiser.rule, amax);
    convert_by(quantiser.rule, scale, run);
    encode(quantiser.rule.to, run, codes.data());
    decode(quantiser.rule.to, codes.data(), run);
    for (float& value : run) {
      value *= scale;
    }
  }
}

void read_h(const Problem& problem, const Operands& operands, const RowOfH& row, float* to) {
  if (row.rank == 0) {
    return;
  }
  const Dtype dtype = problem.dtype[Role::kH];
  const std::int64_t first = problem.h_at(row.slice, row.token, row.rank, 0);
  const std::span<float> numbers(to, static_cast<std::size_t>(row.rank));
  decode(dtype, static_cast<const std::byte*>(operands.h) + first * size_bytes(dtype), numbers);
  if (problem.has_scaled_h()) {
    multiply_by_scales(problem, operands.h_scale, problem.row_of_activations(row.slice, row.token),
                       0, numbers);
  }
  if (problem.h_quantiser) {
    quantise_lanes(*problem.h_quantiser, numbers);
  }
}

}  // namespace lora_bench
