#include "workload/route.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "workload/problem.h"

namespace lora_bench {

Route Route::of_rows(std::span<const std::int64_t> rows) const {
  Route route = *this;
  route.token_of_row.clear();
  route.factor_of_row.clear();
  for (const std::int64_t row : rows) {
    const auto at = static_cast<std::size_t>(row);
    if (!token_of_row.empty()) {
      route.token_of_row.push_back(token_of_row[at]);
    }
    if (!factor_of_row.empty()) {
      route.factor_of_row.push_back(factor_of_row[at]);
    }
  }
  return route;
}

void route_to_experts(const Case& spec, const Batch& batch, const Adapters& adapters,
                      Problem& problem) {
  const ExpertsSpec& experts = spec.experts;
  const bool w13 = experts.part == ExpertsPart::kW13;
  Route& route = problem.route;
  route.experts = experts.count;
  route.choices = experts.top_k;
  route.x_rows = problem.tokens;
  problem.tokens = std::ssize(batch.expert_of_choice);
  problem.slots *= experts.count;
  const std::vector<bool> missing = missing_experts(spec);
  problem.rank.clear();
  problem.scale.clear();
  for (std::int64_t slot = 0; slot < problem.slots; ++slot) {
    const auto adapter = static_cast<std::size_t>(slot / experts.count);
    problem.rank.push_back(missing[static_cast<std::size_t>(slot)] ? 0 : adapters.rank[adapter]);
    problem.scale.push_back(adapters.scale[adapter]);
  }
  std::vector<std::int32_t> slot_of_row;
  for (std::int64_t row = 0; row < problem.tokens; ++row) {
    const auto token = static_cast<std::size_t>(row / experts.top_k);
    const std::int32_t expert = batch.expert_of_choice[static_cast<std::size_t>(row)];
    const std::int64_t adapter = batch.adapter_of_token[token];
    slot_of_row.push_back(adapter < 0 || expert < 0
                              ? kNoAdapter
                              : static_cast<std::int32_t>(adapter * experts.count + expert));
    if (w13 && has_shrink(problem.op)) {
      route.token_of_row.push_back(static_cast<std::int32_t>(token));
    }
  }
  const bool weighted = experts.weight_at == (w13 ? WeightAt::kInput : WeightAt::kOutput);
  if (weighted && has_expand(problem.op)) {
    route.factor_of_row = batch.weight_of_choice;
  }
  problem.plan = make_plan(slot_of_row, problem.slots);
}

std::vector<std::int32_t> slots_of_x_rows(const Problem& problem) {
  const std::vector<std::int32_t>& slots = problem.plan.adapter_of_token;
  if (!problem.shares_x()) {
    return slots;
  }
  std::vector<std::int32_t> of_x(static_cast<std::size_t>(problem.x_rows()), kNoAdapter);
  for (std::size_t row = 0; row < slots.size(); ++row) {
    std::int32_t& slot = of_x[static_cast<std::size_t>(problem.route.token_of_row[row])];
    slot = slot == kNoAdapter ? slots[row] : slot;
  }
  return of_x;
}

std::string slot_named(const Route& route, std::int64_t slot) {
  return route.experts < 2
             ? fmt::format("adapter {}", slot)
             : fmt::format("adapter {}, expert {}", slot / route.experts, slot % route.experts);
}

std::string row_named(const Route& route, std::int64_t row) {
  return route.choices < 2
             ? fmt::format("token {}", row)
             : fmt::format("token {}, choice {}", row / route.choices, row % route.choices);
}

std::optional<RouteFacts> facts_of_route(const Problem& problem) {
  const Route& route = problem.route;
  if (!route.any()) {
    return std::nullopt;
  }
  RouteFacts facts{.tokens = problem.tokens / route.choices,
                   .pairs = problem.tokens,
                   .adapters = problem.slots / route.experts};
  std::set<std::int64_t> adapters, experts;
  std::int64_t acting = 0;
  for (std::int64_t group = 0; group < problem.plan.active(); ++group) {
    const auto at = static_cast<std::size_t>(group);
    const std::int32_t slot = problem.plan.active_ids[at];
    if (!problem.acts(slot)) {
      continue;
    }
    const std::int64_t rows = problem.plan.group_starts[at + 1] - problem.plan.group_starts[at];
    adapters.insert(slot / route.experts);
    experts.insert(slot % route.experts);
    ++facts.hits;
    acting += rows;
    facts.most_rows_per_hit = std::max(facts.most_rows_per_hit, rows);
  }
  facts.active_adapters = std::ssize(adapters);
  facts.experts_hit = std::ssize(experts);
  if (facts.hits > 0) {
    facts.rows_per_hit = static_cast<double>(acting) / static_cast<double>(facts.hits);
  }
  if (facts.pairs > 0) {
    facts.idle_pairs_share =
        static_cast<double>(facts.pairs - acting) / static_cast<double>(facts.pairs);
  }
  return facts;
}

}  // namespace lora_bench
