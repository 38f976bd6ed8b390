#pragma once

#include <cstdint>
#include <vector>

#include "ops/backend.h"
#include "plan/plan.h"

namespace lora_bench::test {

// A launch as if the rows had these adapters, in place of those of the batch.
inline void launch_for(const std::vector<std::int32_t>& ids, Problem problem, Operands operands,
                       const Backend& backend) {
  problem.plan = make_plan(ids, problem.slots);
  operands.adapter_of_token = problem.plan.adapter_of_token.data();
  operands.token_order = problem.plan.token_order.data();
  operands.active_ids = problem.plan.active_ids.data();
  operands.group_starts = problem.plan.group_starts.data();
  backend.launch(problem, operands, {});
}

}  // namespace lora_bench::test
