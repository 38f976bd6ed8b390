#include "measure/scales_of_rows.h"

#include <algorithm>
#include <utility>

#include "core/bytes.h"
#include "core/dtype.h"
#include "workload/excerpt.h"

namespace lora_bench {
namespace {

HostTensor scales_of_rows(const Problem& whole, const Tensors& from,
                          const std::vector<RowsOfWeights>& rows, const Problem& problem,
                          Role role) {
  const Operand operand = operand_of(problem, role, 0);
  const std::int64_t bytes = size_bytes(operand.dtype);
  const std::int64_t down = operand.shape[1], across = operand.shape[2];
  const bool of_a = role == Role::kAScale;
  HostTensor scales{operand.dtype, operand.elements, zero_bytes(operand.bytes())};
  for (std::int64_t place = 0; place < operand.elements; ++place) {
    const auto slot = static_cast<std::size_t>(place / (down * across));
    const RowsOfWeights& of = rows[slot];
    const std::int64_t row = place / across % down;
    if (of_a && row >= problem.rank[slot]) {
      continue;  // no lane of this slot
    }
    const ScaleBlocks blocks = whole.scales_of(role, of.slice);
    const std::int64_t first = of_a && has_expand(whole.op) ? 0 : of.first;
    const HostTensor& drawn =
        (of_a ? from.a_scale : from.b_scale)[static_cast<std::size_t>(of.slice)];
    copy_elements_of_set({whole, role, drawn}, of.slot, of.set,
                         blocks.at(0, first + row, place % across * blocks.columns), 1,
                         scales.data.data() + place * bytes);
  }
  return scales;
}

void add_scales_of_activations(const Problem& whole, const Tensors& from,
                               const std::vector<RowsOfWeights>& rows, Problem& problem,
                               Tensors& tensors) {
  if (!whole.has_scaled_activations()) {
    return;
  }
  if (whole.activations_scale == ActivationsScale::kTensor) {
    problem.activations_scale = ActivationsScale::kToken;
  }
  const ScalesOfRows scales = whole.scales_of_rows();
  const Operand operand = operand_of(problem, problem.their_scales());
  // Of an h that has fewer lanes here those alone.
  const std::int64_t bytes = operand.shape.back() * size_bytes(operand.dtype);
  const HostTensor& drawn = from.of(operand);
  HostTensor& taken = tensors.of(operand) = {operand.dtype, operand.elements, {}};
  for (const RowsOfWeights& row : rows) {
    const std::int64_t first =
        scales.at(whole.row_of_activations(row.slice, row.token), whole.tokens, 0);
    const auto begin = drawn.data.begin() + first * size_bytes(operand.dtype);
    taken.data.insert(taken.data.end(), begin, begin + bytes);
  }
}

}  // namespace

void add_scales_of_rows(const Problem& whole, const Tensors& from,
                        const std::vector<RowsOfWeights>& rows, Problem& problem,
                        Tensors& tensors) {
  if (whole.has_factors()) {
    std::vector<std::int64_t> tokens;
    for (const RowsOfWeights& row : rows) {
      tokens.push_back(row.token);
    }
    problem.route.factor_of_row = whole.route.of_rows(tokens).factor_of_row;
    tensors.factor = {Dtype::kFp32, std::ssize(rows), {}};
    for (const std::int64_t token : tokens) {
      const auto factor = from.factor.data.begin() + token * size_bytes(Dtype::kFp32);
      tensors.factor.data.insert(tensors.factor.data.end(), factor,
                                 factor + size_bytes(Dtype::kFp32));
    }
  }
  if (!whole.has_scaled_weights()) {
    return;
  }
  if (whole.weights_scale == WeightsScale::kTensor) {
    problem.weights_scale = WeightsScale::kChannel;
  }
  problem.block_rows = std::min<std::int64_t>(whole.block_rows, 1);
  tensors.a_scale = {scales_of_rows(whole, from, rows, problem, Role::kAScale)};
  tensors.b_scale = {scales_of_rows(whole, from, rows, problem, Role::kBScale)};
  add_scales_of_activations(whole, from, rows, problem, tensors);
}

}  // namespace lora_bench
