#pragma once

#include <cstdint>

namespace lora_bench::kernels {

// One cluster of blocks, or one block where the device has no clusters. Block b, warp w, round r
// and lane l read token ((b * warps + w) * rounds + r) * 32 + l: ascending in (b, w, r, l), on
// which the stability of the order rests.
struct PlanTuning {
  int blocks = 0;  // 0: more slots than shared memory has room for
  int warps_per_block = 0;
  std::int64_t shared_bytes = 0;
  int clusters = 1;  // side by side along y, each of which reads all rows

  friend bool operator==(const PlanTuning&, const PlanTuning&) = default;
};

// Rounds whose loads are under way together.
constexpr int kPlanRoundsInFlight = 4;
constexpr int kPlanLeastWarps = 8;
constexpr int kPlanMostWarps = 32;
// What every architecture lets a block have, if asked: 64 KB, less what the kernel has by itself.
constexpr std::int64_t kPlanSharedBytes = 63 << 10;
// More than eight have to be asked for: every Hopper GPU has clusters of sixteen such blocks.
constexpr int kPlanMostBlocks = 16;

// For any batch of up to `most_tokens`: a captured launch keeps its shape. `units`: two more rows
// of shared memory, for where groups and their units begin (grouping.cuh).
[[nodiscard]] PlanTuning plan_tuning(std::int64_t most_tokens, std::int64_t slots,
                                     int compute_capability, bool units = false,
                                     std::int64_t most_shared_bytes = kPlanSharedBytes);

// The two launches of form align: the first notes the slots of rows, a bit for each, the second has
// a cluster for each that there may be and groups its pairs by expert.
struct AlignTuning {
  PlanTuning slots, pairs;
};
constexpr std::int64_t kAlignBitsOfWord = 32;
// One bit more, for rows without an adapter.
[[nodiscard]] constexpr std::int64_t align_words(std::int64_t slots) {
  return slots / kAlignBitsOfWord + 1;
}
// pairs.blocks is 0 where shared memory has no room for the experts or the slots, or a grid none
// for the clusters.
[[nodiscard]] AlignTuning align_tuning(std::int64_t tokens, std::int64_t slots,
                                       std::int64_t experts, std::int64_t top_k,
                                       int compute_capability);

// Rounds of each warp for so many tokens.
[[nodiscard]] std::int64_t plan_rounds(const PlanTuning& tuning, std::int64_t tokens);

// Ballots that tell `slots` adapters, none, and lanes past the end from each other.
[[nodiscard]] int plan_bits(std::int64_t slots);

}  // namespace lora_bench::kernels
