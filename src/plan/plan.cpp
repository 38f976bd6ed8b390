#include "plan/plan.h"

#include <limits>
#include <stdexcept>
#include <string>

namespace lora_bench {

void check_adapter_ids(std::span<const std::int32_t> adapter_of_token, std::int64_t slots) {
  if (adapter_of_token.size() > std::numeric_limits<std::int32_t>::max()) {
    throw std::invalid_argument("a plan holds at most 2147483647 rows, got " +
                                std::to_string(adapter_of_token.size()));
  }
  for (std::size_t token = 0; token < adapter_of_token.size(); ++token) {
    const std::int32_t id = adapter_of_token[token];
    if (id < -1 || id >= slots) {
      throw std::invalid_argument("row " + std::to_string(token) + " names adapter " +
                                  std::to_string(id) + "; ids go from -1 to " +
                                  std::to_string(slots - 1));
    }
  }
}

Plan make_plan(std::span<const std::int32_t> adapter_of_token, std::int64_t slots) {
  check_adapter_ids(adapter_of_token, slots);
  // Rows without an adapter are the group after the last slot, which puts them last.
  const auto groups = static_cast<std::size_t>(slots) + 1;
  const auto group_of = [&](std::int32_t id) {
    return id < 0 ? groups - 1 : static_cast<std::size_t>(id);
  };

  std::vector<std::int32_t> next(groups + 1, 0);
  for (const std::int32_t id : adapter_of_token) {
    ++next[group_of(id) + 1];
  }
  Plan plan;
  plan.adapter_of_token.assign(adapter_of_token.begin(), adapter_of_token.end());
  plan.group_starts.push_back(0);
  for (std::size_t group = 0; group < groups; ++group) {
    const std::int32_t rows = next[group + 1];
    next[group + 1] += next[group];
    if (rows > 0 && group + 1 < groups) {
      plan.active_ids.push_back(static_cast<std::int32_t>(group));
      plan.group_starts.push_back(next[group + 1]);
    }
  }
  plan.token_order.resize(adapter_of_token.size());
  for (std::size_t token = 0; token < adapter_of_token.size(); ++token) {
    std::int32_t& place = next[group_of(adapter_of_token[token])];
    plan.token_order[static_cast<std::size_t>(place)] = static_cast<std::int32_t>(token);
    ++place;
  }
  return plan;
}

}  // namespace lora_bench
