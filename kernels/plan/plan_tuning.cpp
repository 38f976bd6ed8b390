#include "kernels/plan/plan_tuning.h"

#include <algorithm>
#include <bit>

#include "kernels/divide_up.h"

namespace lora_bench::kernels {
namespace {

constexpr std::int64_t kWarpLanes = 32;
// Beside a row for each warp: counts of the block, of all blocks, and starts.
constexpr std::int64_t kRowsBesideWarps = 3;
constexpr std::int64_t kRowsOfUnits = 2;

std::int64_t shared_bytes(int warps, std::int64_t slots, bool units) {
  const std::int64_t groups = slots + 1;
  return (warps + kRowsBesideWarps + (units ? kRowsOfUnits : 0)) * groups *
         static_cast<std::int64_t>(sizeof(std::int32_t));
}

// Warps that serve a block of so many rows in one round, within what a block may have.
int wanted_warps(std::int64_t rows) {
  const std::int64_t enough = divide_up(std::max<std::int64_t>(rows, 1), kWarpLanes);
  return static_cast<int>(std::clamp<std::int64_t>(
      static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(enough))), kPlanLeastWarps,
      kPlanMostWarps));
}

}  // namespace

PlanTuning plan_tuning(std::int64_t most_tokens, std::int64_t slots, int compute_capability,
                       bool units, std::int64_t most_shared_bytes) {
  constexpr int kFirstWithClusters = 90;
  constexpr std::int64_t kRowsOfOneBlock = 512;
  PlanTuning tuning;
  tuning.blocks = 1;
  if (compute_capability >= kFirstWithClusters && most_tokens > kRowsOfOneBlock) {
    const auto enough =
        static_cast<std::uint64_t>(divide_up(most_tokens, kPlanLeastWarps * kWarpLanes));
    tuning.blocks =
        static_cast<int>(std::min<std::uint64_t>(std::bit_ceil(enough), kPlanMostBlocks));
  }
  int warps = wanted_warps(divide_up(most_tokens, tuning.blocks));
  while (warps > 0 && shared_bytes(warps, slots, units) > most_shared_bytes) {
    warps /= 2;
  }
  if (warps == 0) {
    return {};
  }
  tuning.warps_per_block = warps;
  tuning.shared_bytes = shared_bytes(warps, slots, units);
  return tuning;
}

AlignTuning align_tuning(std::int64_t tokens, std::int64_t slots, std::int64_t experts,
                         std::int64_t top_k, int compute_capability) {
  constexpr std::int64_t kMostClusters = 65535;  // along y
  // From 8.0 on a block may have 100 KB and more, so that a counter of 4096 experts has room.
  constexpr int kFirstWithMore = 80;
  constexpr std::int64_t kMoreSharedBytes = 98 << 10;
  AlignTuning tuning;
  tuning.slots = plan_tuning(tokens, 0, compute_capability);
  tuning.slots.shared_bytes = align_words(slots) * static_cast<std::int64_t>(sizeof(std::uint32_t));
  tuning.pairs =
      plan_tuning(tokens * top_k, experts, compute_capability, true,
                  compute_capability >= kFirstWithMore ? kMoreSharedBytes : kPlanSharedBytes);
  const std::int64_t clusters = std::min(tokens, slots + 1);
  if (clusters > kMostClusters || tuning.slots.shared_bytes > kPlanSharedBytes) {
    tuning.pairs = {};
  }
  tuning.pairs.clusters = static_cast<int>(clusters);
  return tuning;
}

std::int64_t plan_rounds(const PlanTuning& tuning, std::int64_t tokens) {
  return divide_up(tokens, kWarpLanes * tuning.blocks * tuning.warps_per_block);
}

int plan_bits(std::int64_t slots) {
  const auto past_the_end = static_cast<std::uint64_t>(slots) + 1;
  return static_cast<int>(std::bit_width(past_the_end));
}

}  // namespace lora_bench::kernels
