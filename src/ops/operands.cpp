#include "ops/operands.h"

#include <algorithm>
#include <stdexcept>

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
  }
  throw std::logic_error("an operand of no role");
}

Operands no_operands(const Problem& problem) {
  Operands operands;
  operands.a = operands.b = operands.bias =
      std::vector<const void*>(problem.widths.size(), nullptr);
  return operands;
}

std::vector<IndexArray> index_arrays_of(const Problem& problem, std::int64_t least_groups) {
  const Plan& plan = problem.plan;
  std::vector<std::int32_t> ids = plan.active_ids;
  std::vector<std::int32_t> starts = plan.group_starts;
  const std::int64_t groups = std::max(problem.groups(), least_groups);
  ids.resize(static_cast<std::size_t>(groups), kNoAdapter);
  if (problem.max_active > 0 || least_groups > 0) {
    starts.resize(static_cast<std::size_t>(groups) + 1,
                  static_cast<std::int32_t>(plan.rows_with_adapter()));
  }
  return {{"adapter_of_token", &Operands::adapter_of_token, plan.adapter_of_token},
          {"token_order", &Operands::token_order, plan.token_order},
          {"active_ids", &Operands::active_ids, std::move(ids)},
          {"group_starts", &Operands::group_starts, std::move(starts)},
          {"rank", &Operands::rank, {problem.rank.begin(), problem.rank.end()}}};
}

}  // namespace lora_bench
