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

}  // namespace

PlanTuning plan_tuning(std::int64_t most_tokens, std::int64_t slots, int compute_capability,
                       bool units) {
  constexpr int kFirstWithClusters = 90;
  PlanTuning tuning;
  int warps = kPlanMostWarps;
  while (warps > 0 && shared_bytes(warps, slots, units) > kPlanSharedBytes) {
    warps /= 2;
  }
  if (warps == 0) {
    return tuning;
  }
  tuning.warps_per_block = warps;
  tuning.shared_bytes = shared_bytes(warps, slots, units);
  tuning.blocks = 1;
  if (compute_capability >= kFirstWithClusters) {
    const std::int64_t tokens_per_block = warps * kPlanRoundsInFlight * kWarpLanes;
    const auto enough = static_cast<std::uint64_t>(divide_up(most_tokens, tokens_per_block));
    tuning.blocks = static_cast<int>(std::min<std::uint64_t>(
        std::bit_ceil(std::max<std::uint64_t>(enough, 1)), kPlanMostBlocks));
  }
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
