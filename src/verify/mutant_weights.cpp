#include <algorithm>
#include <vector>

#include "core/dtype.h"
#include "verify/mutant_values.h"

namespace lora_bench {

void scale_rows(const Problem& problem, const Operands& operands, WeightsPlace first,
                std::int64_t pitch, std::span<float> values) {
  if (!problem.has_scaled_weights()) {
    return;
  }
  const bool of_a = first.weights == Role::kA;
  const ScaleBlocks blocks = of_a ? problem.scales_of_a() : problem.scales_of_b(first.slice);
  const auto& addresses = of_a ? operands.a_scale : operands.b_scale;
  const void* const stored = addresses[static_cast<std::size_t>(first.slice)];
  const std::int64_t columns = std::min(pitch, of_a ? problem.in_features : problem.max_rank);
  for (std::int64_t begin = 0; begin < std::ssize(values); begin += pitch, ++first.row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      values[static_cast<std::size_t>(begin + column)] *=
          load(Dtype::kFp32, stored, blocks.at(first.slot, first.row, column));
    }
  }
}

}  // namespace lora_bench
