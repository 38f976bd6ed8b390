#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lora_bench {

struct Case;
struct Batch;
struct Adapters;
struct Problem;

// Which row of x a row of a step reads, and what its delta is multiplied by. In a layer of experts
// a row is a pair, a token and one of the experts that it chose, and its slot is adapter x experts
// + expert. A step without experts has one expert and one choice.
struct Route {
  std::int64_t experts = 1;  // of the layer
  std::int64_t choices = 1;  // pairs of a token, which follow each other in the batch as drawn
  std::int64_t x_rows = 0;   // that token_of_row points into
  std::vector<std::int32_t> token_of_row;  // [M]; empty: each row has a row of x of its own
  std::vector<float> factor_of_row;        // [M], the router's weights; empty: no factors

  // Also of one expert and one choice: its w13 reads x by token all the same.
  [[nodiscard]] bool any() const { return *this != Route{}; }
  // The same of other rows: of those that stand at these places.
  [[nodiscard]] Route of_rows(std::span<const std::int64_t> rows) const;
  [[nodiscard]] bool operator==(const Route&) const = default;
};

// Gives a problem that has the rows of the batch and the adapters of a layer of experts its pairs
// for rows, and for slots the experts of each adapter.
void route_to_experts(const Case& spec, const Batch& batch, const Adapters& adapters,
                      Problem& problem);

// "adapter 3", with experts "adapter 3, expert 12"; "token 7", with choices "token 7, choice 1".
[[nodiscard]] std::string slot_named(const Route& route, std::int64_t slot);
[[nodiscard]] std::string row_named(const Route& route, std::int64_t row);

// Of each row of x the slot of the first row that has one and reads it; kNoAdapter: nobody does.
[[nodiscard]] std::vector<std::int32_t> slots_of_x_rows(const Problem& problem);

// What a step with experts comes to. A hit is an adapter and an expert that some pair needs.
struct RouteFacts {
  std::int64_t tokens = 0, pairs = 0, adapters = 0, active_adapters = 0;
  std::int64_t hits = 0, experts_hit = 0, most_rows_per_hit = 0;
  double rows_per_hit = 0;      // mean; 0 without hits
  double idle_pairs_share = 0;  // of pairs that no adapter acts on

  [[nodiscard]] bool operator==(const RouteFacts&) const = default;
};
// None of a step without experts.
[[nodiscard]] std::optional<RouteFacts> facts_of_route(const Problem& problem);

}  // namespace lora_bench
