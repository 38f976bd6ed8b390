#include "workload/problem.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/sha256.h"
#include "core/units.h"

namespace lora_bench {
namespace {

std::int64_t product(std::initializer_list<std::int64_t> factors) {
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

}  // namespace

Problem make_problem(const Case& spec, const Batch& batch, const Adapters& adapters) {
  const LayerShape& layer = spec.layer;
  const std::int64_t columns =
      std::accumulate(layer.widths.begin(), layer.widths.end(), layer.offset_start);
  Problem problem;
  problem.op = spec.op == Op::kLayer ? Op::kLinear : spec.op;
  problem.dtype = spec.dtype;
  problem.intermediate = spec.intermediate;
  problem.scale_at = spec.scale_at;
  problem.add_inputs = spec.add_inputs;
  problem.bias = spec.adapters.bias && has_expand(spec.op);
  problem.tokens = static_cast<std::int64_t>(batch.adapter_of_token.size());
  problem.in_features = layer.in_features;
  problem.widths = layer.widths;
  problem.offset_start = layer.offset_start;
  problem.x_stride = std::max(layer.x_stride, layer.in_features);
  problem.y_stride = std::max(layer.y_stride, columns);
  problem.slots = spec.adapters.slots;
  problem.max_rank = adapters.max_rank;
  problem.rank = adapters.rank;
  problem.scale = adapters.scale;
  problem.max_active = spec.plan.max_slots;
  problem.tuning = spec.tuning;
  problem.plan = make_plan(batch.adapter_of_token, spec.adapters.slots);
  return problem;
}

std::int64_t Problem::groups() const {
  return std::max(plan.active(), std::min({max_active, tokens, slots}));
}

Problem half_of(Problem linear, Op half) {
  linear.op = half;
  linear.tuning = tuning_of_op(std::move(linear.tuning), half);
  return linear;
}

std::vector<std::int32_t> active_ids_of(const Problem& problem) {
  std::vector<std::int32_t> ids = problem.plan.active_ids;
  ids.resize(static_cast<std::size_t>(problem.groups()), kNoAdapter);
  return ids;
}

std::vector<std::int32_t> group_starts_of(const Problem& problem) {
  std::vector<std::int32_t> starts = problem.plan.group_starts;
  if (problem.max_active > 0) {
    starts.resize(static_cast<std::size_t>(problem.groups()) + 1,
                  static_cast<std::int32_t>(problem.plan.rows_with_adapter()));
  }
  return starts;
}

OperandSizes operand_sizes(const Problem& problem) {
  OperandSizes sizes;
  const bool shrink = has_shrink(problem.op);
  const bool expand = has_expand(problem.op);
  for (const std::int64_t width : problem.widths) {
    sizes.a.push_back(shrink ? product({problem.slots, problem.max_rank, problem.in_features}) : 0);
    sizes.b.push_back(expand ? product({problem.slots, width, problem.max_rank}) : 0);
    sizes.bias.push_back(expand && problem.bias ? product({problem.slots, width}) : 0);
  }
  sizes.x = shrink ? product({problem.tokens, problem.x_stride}) : 0;
  sizes.h = product({problem.slices(), problem.tokens, problem.max_rank});
  sizes.y = expand ? product({problem.tokens, problem.y_stride}) : 0;
  return sizes;
}

std::string content_of(const Problem& problem) {
  const OperandSizes sizes = operand_sizes(problem);
  std::string text =
      fmt::format("{}|{}|{}|{}|{}|{}|", name(problem.op), name(problem.dtype),
                  name(problem.intermediate), name(problem.scale_at), problem.add_inputs,
                  std::any_of(sizes.bias.begin(), sizes.bias.end(),
                              [](std::int64_t elements) { return elements > 0; }));
  text += fmt::format("{}|{}|{}|{}|", problem.tokens, problem.in_features,
                      fmt::join(problem.widths, ","), problem.offset_start);
  // A stride of what the op has not, or of no rows, is nothing.
  const bool rows = problem.tokens > 0;
  text += fmt::format("{}|{}|", rows && has_shrink(problem.op) ? problem.x_stride : 0,
                      rows && has_expand(problem.op) ? problem.y_stride : 0);
  text += fmt::format("{}|{}|{}|{}", problem.slots, problem.max_rank, fmt::join(problem.rank, ","),
                      fmt::join(problem.plan.adapter_of_token, ","));
  return sha256(text).substr(0, 16);
}

}  // namespace lora_bench
