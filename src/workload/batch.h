#pragma once

#include <cstdint>
#include <vector>

#include "scenario/case.h"

namespace lora_bench {

constexpr std::int32_t kNoAdapter = -1;

struct Sequence {
  std::int64_t first_token = 0;
  std::int64_t tokens = 0;
  std::int32_t adapter = kNoAdapter;
};

// The rows of one step, in the order in which kernels see them.
struct Batch {
  std::vector<Sequence> sequences;
  std::vector<std::int32_t> adapter_of_token;  // [tokens], and up to plan.max_tokens none
  // Of a layer of experts, [tokens, top_k]: which a token chose, -1 where one is elsewhere, and the
  // weights that its router gave them.
  std::vector<std::int32_t> expert_of_choice;
  std::vector<float> weight_of_choice;
};

// Deterministic by (case.seed, position). For logits every sequence contributes one row.
[[nodiscard]] Batch draw_batch(const Case& spec);

// Rank and scale of every slot.
struct Adapters {
  std::int64_t max_rank = 0;       // lanes stored per adapter
  std::vector<std::int64_t> rank;  // [slots]
  std::vector<float> scale;        // [slots]
};
[[nodiscard]] Adapters draw_adapters(const Case& spec);
// Of a layer of experts: which of each adapter it has no A and B for, [slots x experts].
[[nodiscard]] std::vector<bool> missing_experts(const Case& spec);

// The numbers 0 .. count - 1 in an order drawn from (seed, stream).
[[nodiscard]] std::vector<std::int64_t> random_order(std::int64_t count, std::uint64_t seed,
                                                     std::uint64_t stream);

// The adapter of each of `count` sequences, in 0 .. slots - 1 (or -1 from a trace); slots >= 1.
[[nodiscard]] std::vector<std::int32_t> draw_law(const SkewLaw& law, std::int64_t count,
                                                 std::int64_t slots, std::uint64_t seed,
                                                 std::uint64_t stream);

}  // namespace lora_bench
