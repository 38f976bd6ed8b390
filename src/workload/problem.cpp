#include "workload/problem.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "core/bytes.h"
#include "core/error.h"
#include "core/units.h"
#include "plan/forms.h"
#include "workload/semantics.h"

namespace lora_bench {
namespace {

std::int64_t product(const std::vector<std::int64_t>& factors) {
  std::int64_t result = 1;
  for (const std::int64_t factor : factors) {
    const std::optional<std::int64_t> next = checked_multiply(result, factor);
    if (!next) {
      throw CaseError("an operand has more elements than 64 bits can count");
    }
    result = *next;
  }
  return result;
}

Operand make_operand(Role role, std::int64_t slice, Dtype dtype, bool has,
                     std::vector<std::int64_t> shape) {
  Operand operand{.role = role, .slice = slice, .dtype = dtype, .shape = std::move(shape)};
  const bool of_rows = role == Role::kX || role == Role::kXScale || role == Role::kH ||
                       role == Role::kHScale || role == Role::kY || role == Role::kFactor;
  operand.per_slot = !of_rows;
  operand.elements = has ? product(operand.shape) : 0;
  if (!checked_multiply(operand.elements, size_bytes(dtype))) {
    throw CaseError("an operand has more bytes than 64 bits can count");
  }
  return operand;
}

std::int64_t gap_of(std::int64_t stride, std::int64_t dense) {
  return stride == 0 ? 0 : stride - dense;
}

}  // namespace

ScaleForm scale_form_of(const Case& spec) {
  const WeightsSpec& weights = spec.weights;
  if (!weights.dtype) {
    return {};
  }
  const bool blocks = weights.scale == WeightsScale::kBlock;
  return {weights.scale, blocks ? weights.block.at(0) : 0, blocks ? weights.block.at(1) : 0};
}

QuantiserRule quantiser_rule_of(const Case& spec, Dtype to) {
  constexpr double kBelowLargest = 512;
  const QuantiserSpec& quantiser = spec.quantiser;
  return {.to = to,
          .convert = quantiser.convert,
          .power_of_two = quantiser.power_of_two,
          .least_amax = static_cast<float>(quantiser.least_amax),
          .least_scale = static_cast<float>(
              quantiser.least_scale.value_or(1 / (kBelowLargest * largest_finite(to))))};
}

std::string rule_text(const QuantiserRule& rule) {
  return fmt::format("{}, least amax {:.6g}, least scale {:.6g}{}", name(rule.convert),
                     rule.least_amax, rule.least_scale, rule.power_of_two ? ", powers of two" : "");
}

Problem make_problem(const Case& spec, const Batch& batch, const Adapters& adapters) {
  const LayerShape& layer = spec.layer;
  const std::int64_t columns =
      std::accumulate(layer.widths.begin(), layer.widths.end(), layer.offset_start);
  Problem problem;
  problem.op = has_base(spec.op) ? Op::kLinear : spec.op;
  problem.dtype = OperandDtypes(spec.dtype, spec.intermediate);
  if (is_eight_bits(spec.intermediate)) {
    problem.dtype[Role::kH] = Dtype::kFp32;
    problem.h_quantiser = {quantiser_rule_of(spec, spec.intermediate), spec.activations.group};
  }
  for (const Role role : {Role::kA, Role::kB, Role::kBias}) {
    problem.dtype[role] = spec.adapters.dtype.value_or(spec.dtype);
  }
  if (spec.weights.dtype) {
    problem.dtype[Role::kA] = problem.dtype[Role::kB] = *spec.weights.dtype;
  }
  if (spec.activations.dtype) {
    problem.dtype[problem.activations()] = *spec.activations.dtype;
    problem.activations_scale = spec.activations.scale;
    problem.activations_group = spec.activations.group;
  }
  const ScaleForm scales = scale_form_of(spec);
  problem.weights_scale = scales.scale;
  problem.block_rows = scales.rows;
  problem.block_columns = scales.columns;
  problem.scale_at = spec.scale_at;
  problem.add_inputs = spec.add_inputs;
  problem.idle_rows = spec.idle_rows;
  problem.inputs = spec.inputs;
  problem.shrink_adds = spec.shrink_adds;
  problem.bias = spec.adapters.bias && has_expand(spec.op);
  problem.bias_slices = spec.adapters.bias_slices;
  problem.rank0_bias = spec.adapters.rank0_bias;
  problem.tokens = static_cast<std::int64_t>(batch.adapter_of_token.size());
  problem.in_features = layer.in_features;
  problem.widths = layer.widths;
  problem.offset_start = layer.offset_start;
  problem.x_stride = std::max(layer.x_stride, layer.in_features);
  problem.y_stride = std::max(layer.y_stride, columns);
  problem.slots = spec.adapters.slots;
  problem.max_rank = adapters.max_rank;
  problem.rank = adapters.rank;
  if (spec.adapters.padding == Padding::kZeros) {
    problem.own_rank = adapters.rank;
    std::replace_if(
        problem.rank.begin(), problem.rank.end(), [](std::int64_t rank) { return rank > 0; },
        adapters.max_rank);
  }
  problem.scale = adapters.scale;
  problem.max_active = spec.plan.max_slots;
  problem.plan_form = spec.plan.form;
  problem.plan_grid = spec.plan.grid;
  if (spec.plan.form == PlanForm::kChunked) {
    problem.chunk = chunk_of_batch(problem.tokens, spec.plan.largest_chunk);
    problem.idle_segments = spec.plan.idle_segments;
  }
  problem.layout.placing = spec.adapters.placing;
  problem.layout.x_column_stride = layer.x_column_stride;
  problem.layout.a_gap = gap_of(spec.adapters.a_stride, problem.in_features);
  problem.layout.b_gap = gap_of(spec.adapters.b_stride, problem.max_rank);
  problem.layout.h_gap = gap_of(layer.h_stride, problem.lanes_together());
  problem.tuning = spec.tuning;
  if (spec.experts.any()) {
    route_to_experts(spec, batch, adapters, problem);
  } else {
    problem.plan = make_plan(batch.adapter_of_token, spec.adapters.slots);
  }
  return problem;
}

Problem make_problem(const Case& spec) {
  return make_problem(spec, draw_batch(spec), draw_adapters(spec));
}

bool Problem::has_bias(std::int64_t slice) const {
  return bias && (bias_slices.empty() ||
                  std::find(bias_slices.begin(), bias_slices.end(), slice) != bias_slices.end());
}

std::int64_t Problem::outputs_of_slot(std::int64_t slice) const {
  return separate() ? widths[static_cast<std::size_t>(slice)]
                    : std::accumulate(widths.begin(), widths.end(), std::int64_t{0});
}

std::int64_t Problem::own_lanes(std::int64_t slot) const {
  const auto at = static_cast<std::size_t>(slot);
  return own_rank.empty() ? rank[at] : std::min(rank[at], own_rank[at]);
}

ScaleBlocks ScaleForm::over(std::int64_t all_rows, std::int64_t all_columns) const {
  ScaleBlocks blocks{std::max<std::int64_t>(all_rows, 1), std::max<std::int64_t>(all_columns, 1), 0,
                     0};
  if (scale == WeightsScale::kChannel) {
    blocks.rows = 1;
  } else if (scale == WeightsScale::kBlock) {
    blocks.rows = rows;
    blocks.columns = columns;
  }
  blocks.down = (all_rows + blocks.rows - 1) / blocks.rows;
  blocks.across = (all_columns + blocks.columns - 1) / blocks.columns;
  return blocks;
}

ScalesOfRows Problem::scales_of_rows() const {
  const std::int64_t columns = op == Op::kExpand ? max_rank : in_features;
  ScalesOfRows scales;
  scales.by_token = activations_scale != ActivationsScale::kTensor;
  scales.rows = scales.by_token ? tokens : std::min<std::int64_t>(tokens, 1);
  scales.columns = activations_scale == ActivationsScale::kBlock
                       ? activations_group
                       : std::max<std::int64_t>(columns, 1);
  scales.across = (columns + scales.columns - 1) / scales.columns;
  return scales;
}

ScaleBlocks Problem::scales_of_a() const { return scale_form().over(max_rank, in_features); }

ScaleBlocks Problem::scales_of_b(std::int64_t slice) const {
  return scale_form().over(widths[static_cast<std::size_t>(slice)], max_rank);
}

bool OperandDtypes::alike() const {
  OperandDtypes of_x((*this)[Role::kX], (*this)[Role::kH]);
  return *this == of_x;
}

namespace {

// Of this batch.
std::int64_t segments_of(const Problem& problem) {
  const Plan& plan = problem.plan;
  const auto segments = [&](std::int64_t rows) {
    return (rows + problem.chunk - 1) / problem.chunk;
  };
  std::int64_t count = 0;
  for (std::size_t group = 0; group < plan.active_ids.size(); ++group) {
    count += segments(plan.group_starts[group + 1] - plan.group_starts[group]);
  }
  return count + (problem.idle_segments ? segments(problem.tokens - plan.rows_with_adapter()) : 0);
}

}  // namespace

std::int64_t Problem::groups() const {
  const bool all = plan_grid == PlanGrid::kSlots;
  switch (plan_form) {
    case PlanForm::kKernel:
      if (all || plan.active() == 0) {
        return all ? slots + 1 : 0;
      }
      return plan.active() + (plan.rows_with_adapter() < tokens ? 1 : 0);
    case PlanForm::kChunked:
      return all ? most_segments(tokens, group_slots(), chunk) : segments_of(*this);
    case PlanForm::kSorted:
      break;
  }
  return std::max(plan.active(), std::min({max_active, tokens, slots}));
}

std::vector<Operand> operands_of(const Problem& problem) {
  const bool shrink = has_shrink(problem.op);
  const bool expand = has_expand(problem.op);
  const std::int64_t slots = problem.slots;
  std::vector<Operand> operands;
  const auto add = [&](Role role, std::int64_t slice, bool has, std::vector<std::int64_t> shape) {
    operands.push_back(make_operand(role, slice, problem.dtype[role], has, std::move(shape)));
    operands.back().written = role == Role::kY || (role == Role::kH && shrink);
    operands.back().given = role != Role::kH || !shrink || problem.adds_to_h();
  };
  const auto of_slices = [&](bool own, std::int64_t rows, std::int64_t columns) {
    return own ? std::vector{problem.slices(), rows, columns} : std::vector{rows, columns};
  };
  const auto add_scales_of = [&](Role activations) {
    if (problem.has_scales(activations)) {
      const ScalesOfRows scales = problem.scales_of_rows();
      add(problem.their_scales(), -1, true,
          of_slices(problem.own_activations(), scales.rows, scales.across));
      operands.back().of_all_rows = !scales.by_token;
    }
  };
  add(Role::kX, -1, shrink, of_slices(problem.own_inputs(), problem.x_rows(), problem.x_stride));
  operands.back().of_all_rows = problem.shares_x();
  add_scales_of(Role::kX);
  for (std::int64_t slice = 0; slice < problem.slices(); ++slice) {
    const std::int64_t width = problem.widths[static_cast<std::size_t>(slice)];
    add(Role::kA, slice, shrink, {slots, problem.max_rank, problem.in_features});
    add(Role::kB, slice, expand, {slots, width, problem.max_rank});
    add(Role::kBias, slice, expand && problem.has_bias(slice), {slots, width});
    if (problem.has_scaled_weights()) {
      const ScaleBlocks of_a = problem.scales_of_a(), of_b = problem.scales_of_b(slice);
      add(Role::kAScale, slice, shrink, {slots, of_a.down, of_a.across});
      add(Role::kBScale, slice, expand, {slots, of_b.down, of_b.across});
    }
  }
  add(Role::kH, -1, true, {problem.slices(), problem.tokens, problem.max_rank});
  add_scales_of(Role::kH);
  if (problem.has_factors()) {
    add(Role::kFactor, -1, true, {problem.tokens, 1});
  }
  add(Role::kY, -1, expand, {problem.tokens, problem.y_stride});
  return operands;
}

Operand operand_of(const Problem& problem, Role role, std::int64_t slice) {
  for (Operand& operand : operands_of(problem)) {
    if (operand.role == role && operand.slice == slice) {
      return std::move(operand);
    }
  }
  throw std::logic_error("a step has no such operand");
}

std::string label(const Operand& operand) {
  const std::string role(name(operand.role));
  return operand.slice < 0 ? role : fmt::format("{}[{}]", role, operand.slice);
}

namespace {

// Nobody reads the factor of a row without an adapter.
std::string content_of_route(const Problem& problem) {
  const Route& route = problem.route;
  std::vector<float> factors;
  for (std::size_t row = 0; row < route.factor_of_row.size(); ++row) {
    if (problem.plan.adapter_of_token[row] != kNoAdapter) {
      factors.push_back(route.factor_of_row[row]);
    }
  }
  return fmt::format("{}|{}|{}|{}", route.experts, route.choices,
                     fmt::join(route.token_of_row, ","), fmt::join(factors, ","));
}

}  // namespace

std::string content_of(const Problem& problem) {
  const std::vector<Operand> operands = operands_of(problem);
  std::string dtypes(name(problem.dtype[Role::kX]));
  if (!problem.dtype.alike()) {
    for (const Role role : {Role::kA, Role::kB, Role::kBias, Role::kY}) {
      dtypes += fmt::format(" {} {}", name(role), name(problem.dtype[role]));
    }
  }
  std::string text =
      fmt::format("{}|{}|{}|{}|{}|{}|", name(problem.op), dtypes, name(problem.dtype[Role::kH]),
                  name(problem.scale_at), problem.add_inputs,
                  std::any_of(operands.begin(), operands.end(), [](const Operand& operand) {
                    return operand.role == Role::kBias && operand.elements > 0;
                  }));
  text += fmt::format("{}|{}|{}|{}|", problem.tokens, problem.in_features,
                      fmt::join(problem.widths, ","), problem.offset_start);
  // A stride of what the op has not, or of no rows, is nothing.
  const bool rows = problem.tokens > 0;
  text += fmt::format("{}|{}|", rows && has_shrink(problem.op) ? problem.x_stride : 0,
                      rows && has_expand(problem.op) ? problem.y_stride : 0);
  text += fmt::format("{}|{}|{}|{}", problem.slots, problem.max_rank, fmt::join(problem.rank, ","),
                      fmt::join(problem.plan.adapter_of_token, ","));
  // What is asked beyond the plain op; a plain one has the content that it always had.
  if (const std::string semantics = semantics_text(problem); !semantics.empty()) {
    text += "|" + semantics;
  }
  if (problem.route.any()) {
    text += "|" + content_of_route(problem);
  }
  if (!problem.own_rank.empty()) {
    text += fmt::format("|{}", fmt::join(problem.own_rank, ","));
  }
  return sha256(text).substr(0, 16);
}

Problem with_other_counts(const Problem& problem) {
  const Plan& plan = problem.plan;
  const auto at = [](std::int64_t index) { return static_cast<std::size_t>(index); };
  const auto rows_of = [&](std::int64_t group) {
    return plan.group_starts[at(group + 1)] - plan.group_starts[at(group)];
  };
  std::int64_t largest = 0;
  for (std::int64_t group = 1; group < plan.active(); ++group) {
    largest = rows_of(group) > rows_of(largest) ? group : largest;
  }
  if (plan.active() < 2 || rows_of(largest) < 2) {
    return problem;
  }
  Problem result = problem;
  std::vector<std::int32_t> ids = plan.adapter_of_token;
  const std::int32_t row = plan.token_order[at(plan.group_starts[at(largest)])];
  ids[at(row)] = plan.active_ids[at((largest + 1) % plan.active())];
  result.plan = make_plan(ids, problem.slots);
  return result;
}

}  // namespace lora_bench
