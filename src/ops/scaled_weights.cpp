#include "ops/scaled_weights.h"

#include <cstddef>
#include <span>

#include "core/dtype.h"

namespace lora_bench {

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
  for (std::int64_t column = 0; column < count; ++column) {
    to[column] *= scales[blocks.at(row.slot, row.row, first + column)];
  }
}

void read_x(const Problem& problem, const Operands& operands, std::int64_t slice,
            std::int64_t token, std::int64_t first, std::int64_t count, float* to) {
  const Dtype dtype = problem.dtype[Role::kX];
  const ScalesOfRows blocks = problem.scales_of_x();
  const auto* scales = static_cast<const float*>(operands.x_scale);
  const std::int64_t row = problem.x_row(slice, token);
  for (std::int64_t index = 0; index < count; ++index) {
    to[index] = load(dtype, operands.x, problem.x_at(slice, token, first + index));
    if (problem.has_scaled_x()) {
      to[index] *= scales[blocks.at(row, problem.tokens, first + index)];
    }
  }
}

}  // namespace lora_bench
