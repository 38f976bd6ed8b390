#include "ops/operands.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <stdexcept>

#include "core/dtype.h"
#include "ops/auto_choice.h"
#include "ops/backends.h"
#include "ops/idle_rows.h"
#include "ops/scaled_weights.h"
#include "plan/forms.h"

namespace lora_bench {

void Operands::point(const Operand& operand, void* address) {
  const auto slice = static_cast<std::size_t>(operand.slice);
  switch (operand.role) {
    case Role::kX:
      x = address;
      return;
    case Role::kA:
      a[slice] = address;
      return;
    case Role::kB:
      b[slice] = address;
      return;
    case Role::kBias:
      bias[slice] = address;
      return;
    case Role::kH:
      h = address;
      return;
    case Role::kY:
      y = address;
      return;
    case Role::kAScale:
      a_scale[slice] = address;
      return;
    case Role::kBScale:
      b_scale[slice] = address;
      return;
    case Role::kXScale:
      x_scale = address;
      return;
    case Role::kHScale:
      h_scale = address;
      return;
    case Role::kFactor:
      factor = static_cast<const float*>(address);
      return;
  }
  throw std::logic_error("an operand of no role");
}

Operands weights_alone(const Operands& operands) {
  Operands weights;
  weights.a = operands.a;
  weights.b = operands.b;
  weights.bias = operands.bias;
  weights.a_scale = operands.a_scale;
  weights.b_scale = operands.b_scale;
  weights.rank = operands.rank;
  weights.scale = operands.scale;
  weights.prepared = operands.prepared;
  return weights;
}

Problem weights_alone(const Problem& problem) {
  Problem weights = problem;
  const std::vector<std::int32_t> no_adapters(static_cast<std::size_t>(problem.tokens), kNoAdapter);
  weights.plan = make_plan(no_adapters, problem.slots);
  return weights;
}

Problem half_of(Problem linear, Op half) {
  if (half == Op::kExpand && has_shrink(linear.op)) {
    linear.activations_scale = ActivationsScale::kNone;  // those of x
    linear.activations_group = 0;
  }
  if (half == Op::kExpand) {
    linear.route.token_of_row.clear();  // h has a row for each
  } else {
    linear.route.factor_of_row.clear();  // expand multiplies by them
  }
  linear.h_quantiser.reset();
  linear.op = half;
  linear.tuning = tuning_of_op(linear.tuning, half);
  return linear;
}

Operands no_operands(const Problem& problem) {
  Operands operands;
  operands.a = operands.b = operands.bias = operands.a_scale = operands.b_scale =
      std::vector<const void*>(problem.widths.size(), nullptr);
  return operands;
}

namespace {

Plan sorted_with_room(const Problem& problem, std::int64_t least_groups) {
  Plan plan = problem.plan;
  const auto groups = static_cast<std::size_t>(std::max(problem.groups(), least_groups));
  if (problem.max_active > 0 || least_groups > 0) {
    plan.group_starts.resize(groups + 1, static_cast<std::int32_t>(plan.rows_with_adapter()));
  }
  plan.active_ids.resize(groups, kNoAdapter);
  return plan;
}

// The entries of a published form under the names of our plan. Both forms have room for every
// batch.
Plan in_form(const Problem& problem, std::int64_t least_groups) {
  const Plan& plan = problem.plan;
  switch (problem.plan_form) {
    case PlanForm::kKernel: {
      KernelForm form = make_kernel_form(plan, problem.slots);
      return {.adapter_of_token = std::move(form.adapter_of_token),
              .token_order = std::move(form.token_order),
              .active_ids = std::move(form.active_ids),
              .group_starts = std::move(form.starts)};
    }
    case PlanForm::kChunked: {
      ChunkedForm form = make_chunked_form(plan, problem.rank, problem.scale, problem.chunk,
                                           problem.idle_segments);
      const auto most = static_cast<std::size_t>(
          most_segments(problem.tokens, problem.group_slots(), problem.chunk));
      form.segment_starts.resize(most + 1, form.segment_starts.back());
      form.adapter_of_segment.resize(most, kNoAdapter);
      return {.adapter_of_token = plan.adapter_of_token,
              .token_order = std::move(form.permutation),
              .active_ids = std::move(form.adapter_of_segment),
              .group_starts = std::move(form.segment_starts)};
    }
    case PlanForm::kSorted:
      break;
  }
  return sorted_with_room(problem, least_groups);
}

}  // namespace

std::vector<IndexArray> index_arrays_of(const Problem& problem, std::int64_t least_groups) {
  Plan plan = in_form(problem, least_groups);
  std::vector<IndexArray> arrays;
  for (const PlanArray& array : kPlanArrays) {
    arrays.push_back({array.name, array.address, std::move(plan.*array.values)});
  }
  arrays.push_back({"rank", &Operands::rank, {problem.rank.begin(), problem.rank.end()}});
  arrays.back().values.resize(static_cast<std::size_t>(problem.group_slots()), 0);
  if (problem.shares_x()) {
    arrays.push_back({"token_of_row", &Operands::token_of_row, problem.route.token_of_row});
  }
  return arrays;
}

namespace {

float dot(std::span<const float> left, std::span<const float> right) {
  float sum = 0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    sum += left[i] * right[i];
  }
  return sum;
}

// One row of the batch whose adapter does something.
struct OwnedRow {
  std::int64_t token, adapter, rank;
  float scale;
};

std::vector<float> row_of_x(const Problem& problem, const Operands& operands, std::int64_t slice,
                            std::int64_t token) {
  std::vector<float> values(static_cast<std::size_t>(problem.in_features));
  read_x(problem, operands, slice, token, 0, problem.in_features, values.data());
  return values;
}

void shrink_row(const Problem& problem, const Operands& operands, const OwnedRow& row) {
  const std::int64_t k = problem.in_features;
  const float scale = problem.scale_at == ScaleAt::kShrink ? row.scale : 1.0F;
  for (std::int64_t slice = 0; slice < problem.slices(); ++slice) {
    const std::vector<float> x = row_of_x(problem, operands, slice, row.token);
    std::vector<float> a(static_cast<std::size_t>(k));
    for (std::int64_t lane = 0; lane < row.rank; ++lane) {
      read_weights(problem, operands, {Role::kA, slice, row.adapter, row.rank, lane}, 0, k,
                   a.data());
      const std::int64_t to = problem.h_at(slice, row.token, row.rank, lane);
      const float given =
          problem.adds_to_h() ? load(problem.dtype[Role::kH], operands.h, to) : 0.0F;
      store(problem.dtype[Role::kH], operands.h, to, scale * dot(x, a) + given);
    }
  }
}

void expand_row(const Problem& problem, const Operands& operands, const OwnedRow& row) {
  const float scale =
      (problem.scale_at == ScaleAt::kExpand ? row.scale : 1.0F) * operands.factor_of(row.token);
  std::int64_t first_column = problem.offset_start;
  for (std::int64_t slice = 0; slice < problem.slices(); ++slice) {
    const auto index = static_cast<std::size_t>(slice);
    const std::int64_t width = problem.widths[index];
    std::vector<float> h(static_cast<std::size_t>(row.rank));
    read_h(problem, operands, {slice, row.token, row.rank}, h.data());
    std::vector<float> b(h.size());
    for (std::int64_t column = 0; column < width; ++column) {
      const std::int64_t element = row.token * problem.y_stride + first_column + column;
      read_weights(problem, operands, {Role::kB, slice, row.adapter, row.rank, column}, 0, row.rank,
                   b.data());
      float value = scale * dot(h, b);
      if (problem.has_bias(slice)) {
        value += load(problem.dtype[Role::kBias], operands.bias[index],
                      problem.bias_at(slice, row.adapter, column));
      }
      if (problem.add_inputs) {
        value += load(problem.dtype[Role::kY], operands.y, element);
      }
      store(problem.dtype[Role::kY], operands.y, element, value);
    }
    first_column += width;
  }
}

}  // namespace

void apply_plain_formula(const Problem& problem, const Operands& operands) {
  zero_idle_rows(problem, operands, 0, problem.tokens);
  for (std::int64_t token = 0; token < problem.tokens; ++token) {
    const std::int64_t adapter = operands.adapter_of_token[token];
    if (adapter < 0 || !problem.acts(static_cast<std::int32_t>(adapter), operands.rank[adapter])) {
      continue;
    }
    const OwnedRow row{token, adapter, operands.rank[adapter], operands.scale[adapter]};
    if (has_shrink(problem.op)) {
      shrink_row(problem, operands, row);
    }
    if (has_expand(problem.op)) {
      expand_row(problem, operands, row);
    }
  }
}

Numerics plain_formula_numerics(const Problem& problem) {
  Numerics numerics;
  numerics.shrink_depth = problem.in_features;
  numerics.expand_depth = problem.max_rank + 2;
  numerics.intermediate = problem.dtype[Role::kH];
  numerics.summation = "one fp32 sum in index order";
  return numerics;
}

}  // namespace lora_bench
