#include "verify/oracle.h"

#include <stdexcept>

namespace lora_bench {
namespace {

std::vector<const void*> addresses(const std::vector<HostTensor>& tensors) {
  std::vector<const void*> result;
  for (const HostTensor& tensor : tensors) {
    result.push_back(tensor.elements == 0 ? nullptr : tensor.data.data());
  }
  return result;
}

std::vector<const float*> scales(const std::vector<HostTensor>& tensors) {
  std::vector<const float*> result;
  for (const void* address : addresses(tensors)) {
    result.push_back(static_cast<const float*>(address));
  }
  return result;
}

}  // namespace

reference::Number number_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFp32:
      return reference::Number::kFp32;
    case Dtype::kBf16:
      return reference::Number::kBf16;
    case Dtype::kFp16:
      return reference::Number::kFp16;
    case Dtype::kE4m3:
      return reference::Number::kE4m3;
    case Dtype::kE5m2:
      return reference::Number::kE5m2;
  }
  throw std::logic_error("dtype outside the enumeration");
}

reference::QuantiserRule oracle_rule(const QuantiserRule& rule) {
  return {.to = number_of(rule.to),
          .multiplies = rule.convert == Convert::kMultiply,
          .power_of_two = rule.power_of_two,
          .least_amax = rule.least_amax,
          .least_scale = rule.least_scale};
}

reference::Problem oracle_problem(const Problem& problem, const Tensors& tensors) {
  reference::Problem result;
  result.shrink = has_shrink(problem.op);
  result.expand = has_expand(problem.op);
  result.numbers = {.x = number_of(problem.dtype[Role::kX]),
                    .a = number_of(problem.dtype[Role::kA]),
                    .b = number_of(problem.dtype[Role::kB]),
                    .bias = number_of(problem.dtype[Role::kBias]),
                    .h = number_of(problem.dtype[Role::kH]),
                    .y = number_of(problem.dtype[Role::kY])};
  result.scale_at_shrink = problem.scale_at == ScaleAt::kShrink;
  result.add_inputs = problem.add_inputs;
  result.own_inputs = problem.own_inputs();
  result.rank0_bias = problem.biases_rank0();
  result.adds_to_h = problem.adds_to_h();
  result.zeroes_idle_rows = problem.zeroes_idle_rows();
  result.tokens = problem.tokens;
  result.in_features = problem.in_features;
  result.offset_start = problem.offset_start;
  result.x_stride = problem.x_stride;
  result.y_stride = problem.y_stride;
  result.slots = problem.slots;
  result.max_rank = problem.max_rank;
  result.widths = problem.widths;
  result.adapter_of_token = problem.plan.adapter_of_token;
  result.rank = problem.rank;
  result.scale = tensors.scale;
  result.x = tensors.x.data.data();
  result.a = addresses(tensors.a);
  result.b = addresses(tensors.b);
  if (problem.bias) {
    result.bias = addresses(tensors.bias);
  }
  if (problem.has_scaled_weights()) {
    result.a_scale = scales(tensors.a_scale);
    result.b_scale = scales(tensors.b_scale);
    // A block of no rows or columns is one of all.
    result.block_rows = problem.weights_scale == WeightsScale::kChannel ? 1 : problem.block_rows;
    result.block_columns = problem.block_columns;
  }
  if (problem.has_scaled_activations()) {
    const bool of_x = problem.has_scaled_x();
    const HostTensor& scales = of_x ? tensors.x_scale : tensors.h_scale;
    (of_x ? result.x_scale : result.h_scale) = {
        reinterpret_cast<const float*>(scales.data.data()),
        problem.activations_scale == ActivationsScale::kTensor, problem.activations_group};
  }
  if (problem.h_quantiser) {
    result.quantiser_of_h = {oracle_rule(problem.h_quantiser->rule), problem.h_quantiser->group};
  }
  result.row_of_x = problem.route.token_of_row;
  if (problem.has_factors()) {
    result.factor = {reinterpret_cast<const float*>(tensors.factor.data.data()),
                     static_cast<std::size_t>(tensors.factor.elements)};
  }
  result.h = tensors.h.data.data();
  result.y = tensors.y.data.data();
  return result;
}

reference::Arithmetic oracle_arithmetic(const Problem& problem, const Numerics& numerics) {
  reference::Arithmetic result;
  result.unit_roundoff = numerics.unit_roundoff;
  result.shrink_depth = numerics.shrink_depth;
  result.expand_depth = numerics.expand_depth;
  result.partial = number_of(numerics.partial);
  result.partials = numerics.partials;
  result.terms_of_h = numerics.terms_of_h;
  result.rounds_once = numerics.rounds_once;
  result.casts_h = numerics.casts_h;
  result.rounds_delta = numerics.rounds_delta;
  result.bias_added = static_cast<reference::BiasAdded>(numerics.bias_added);
  // A backend may keep h better than the case asks, not worse. Where h is the result, its dtype is
  // the final rounding, which the comparison makes, unless it is a sum of stored terms.
  const Dtype asked = problem.kept_h();
  const bool kept_better = unit_roundoff(numerics.intermediate) < unit_roundoff(asked);
  const Dtype stored = kept_better ? numerics.intermediate : asked;
  result.intermediate =
      number_of(has_expand(problem.op) || numerics.terms_of_h > 1 ? stored : Dtype::kFp32);
  return result;
}

reference::Rows evaluate_rows(const Problem& problem, const Tensors& tensors,
                              const Numerics& numerics, std::span<const std::int64_t> rows,
                              std::int64_t threads) {
  return evaluate_rows(problem, tensors, oracle_arithmetic(problem, numerics), rows, threads);
}

reference::Rows evaluate_rows(const Problem& problem, const Tensors& tensors,
                              const reference::Arithmetic& arithmetic,
                              std::span<const std::int64_t> rows, std::int64_t threads) {
  const reference::Rounding rounding =
      is_exact(tensors.fill) ? reference::Rounding::kModelled : reference::Rounding::kBounded;
  return reference::evaluate(oracle_problem(problem, tensors), arithmetic, rows, rounding, threads);
}

Dtype output_dtype(const Problem& problem) {
  return has_expand(problem.op) ? problem.dtype[Role::kY] : problem.dtype[Role::kH];
}

const HostTensor& output_before(const Problem& problem, const Tensors& tensors) {
  return has_expand(problem.op) ? tensors.y : tensors.h;
}

std::int64_t output_index(const Problem& problem, std::int64_t token, std::int64_t column) {
  if (has_expand(problem.op)) {
    return token * problem.y_stride + column;
  }
  const std::int64_t slice = column / problem.max_rank;
  return (slice * problem.tokens + token) * problem.max_rank + column % problem.max_rank;
}

}  // namespace lora_bench
