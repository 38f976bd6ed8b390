#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lora_bench {

// A batch as kernels want it: rows grouped by adapter. Groups are in ascending adapter id; inside
// a group rows keep their order. Rows without an adapter belong to no group and come last.
struct Plan {
  std::vector<std::int32_t> adapter_of_token;  // [tokens], -1 = none
  std::vector<std::int32_t> token_order;       // [tokens], a permutation
  std::vector<std::int32_t> active_ids;        // [active]
  std::vector<std::int32_t> group_starts;      // [active + 1], offsets into token_order

  [[nodiscard]] std::int64_t tokens() const {
    return static_cast<std::int64_t>(token_order.size());
  }
  [[nodiscard]] std::int64_t active() const { return static_cast<std::int64_t>(active_ids.size()); }
  [[nodiscard]] std::int64_t rows_with_adapter() const {
    return group_starts.empty() ? 0 : group_starts.back();
  }
  [[nodiscard]] bool operator==(const Plan&) const = default;
};

// Throws std::invalid_argument, naming the row, for an id outside -1 .. slots - 1 and for more rows
// than 32-bit indices hold.
void check_adapter_ids(std::span<const std::int32_t> adapter_of_token, std::int64_t slots);

// Checks the ids.
[[nodiscard]] Plan make_plan(std::span<const std::int32_t> adapter_of_token, std::int64_t slots);

}  // namespace lora_bench
