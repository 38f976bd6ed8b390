#include "kernels/continued/continued_tuning.h"

#include <algorithm>

#include "kernels/divide_up.h"
#include "kernels/params.h"

namespace lora_bench::kernels {
namespace {

constexpr std::int64_t kVectorElements = 8;  // of 16 bytes
constexpr std::int64_t kLine = 64;           // elements of 128 bytes
constexpr std::int64_t kLeastTokens = 257;   // below, others hide what adapters add
constexpr std::int64_t kMostLanes = 256;
constexpr std::int64_t kMostShared = 227 * 1024;  // of a block
// So many more columns of the product take as long as y takes to be read and written once more: 2
// flops against 4 bytes, at 650 TFLOP/s and 4 TB/s.
constexpr std::int64_t kLanesOfAPass = 325;

}  // namespace

std::int64_t continued_lanes(const ContinuedShape& shape) {
  return kContinuedParts * shape.slices * shape.max_rank;
}

std::int64_t continued_blocks(const ContinuedShape& shape) {
  return std::min(
      {shape.slots, std::int64_t{kContinuedBlocks}, kMostLanes / continued_lanes(shape)});
}

std::int64_t continued_room(const ContinuedShape& shape) {
  return divide_up(continued_blocks(shape) * continued_lanes(shape), kLine) * kLine;
}

ContinuedShared continued_shared(std::int64_t depth, std::int64_t lanes_of_a) {
  constexpr std::int64_t kGroup = 32;        // columns that a warp multiplies at once
  constexpr std::int64_t kLanesOfTile = 16;  // there is code for 16, 32, 48, 64, 96 and 128
  constexpr std::int64_t kBanks = 128;       // bytes
  constexpr std::int64_t kElementBytes = 2;
  ContinuedShared shared;
  shared.columns_each = divide_up(divide_up(depth, kGroup), kContinuedSplits) * kGroup;
  shared.pitch =
      divide_up(shared.columns_each * kElementBytes, kBanks) * kBanks + kGroup * kElementBytes;
  shared.lanes = divide_up(lanes_of_a, kLanesOfTile) * kLanesOfTile;
  if (shared.lanes > 4 * kLanesOfTile) {
    shared.lanes = divide_up(shared.lanes, 2 * kLanesOfTile) * 2 * kLanesOfTile;
  }
  shared.bytes = shared.lanes * (shared.pitch + kContinuedTileRows * 4);
  return shared;
}

namespace {

std::int64_t few_rows(const ContinuedGroup& group) {
  const std::int64_t left = group.rows % kContinuedTileRows;
  return left <= kContinuedFewRows ? left : 0;
}

}  // namespace

std::int64_t continued_tiles(const std::vector<ContinuedGroup>& groups) {
  std::int64_t tiles = 0;
  for (const ContinuedGroup& group : groups) {
    tiles += divide_up(group.rows - few_rows(group), std::int64_t{kContinuedTileRows});
  }
  return tiles;
}

std::int64_t continued_few(const std::vector<ContinuedGroup>& groups) {
  return std::count_if(groups.begin(), groups.end(),
                       [](const ContinuedGroup& group) { return few_rows(group) > 0; });
}

bool continued_takes(const ContinuedShape& shape) {
  return shape.tokens >= kLeastTokens && shape.columns % kVectorElements == 0 && shape.slots > 0 &&
         shape.slices > 0 && shape.slices <= kMaxFusedSlices && shape.max_rank > 0 &&
         shape.max_rank % kVectorElements == 0 && continued_lanes(shape) <= kMostLanes &&
         shape.depth % kVectorElements == 0 &&
         continued_shared(shape.depth, shape.slices * shape.max_rank).bytes <= kMostShared;
}

std::vector<std::int32_t> continued_slots(const ContinuedShape& shape,
                                          std::vector<ContinuedGroup> groups) {
  const auto blocks = static_cast<std::size_t>(continued_blocks(shape));
  std::vector<std::int32_t> slots;
  if (shape.slots <= continued_blocks(shape)) {
    for (std::int32_t slot = 0; slot < shape.slots; ++slot) {
      slots.push_back(slot);
    }
    return slots;
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [](const auto& one, const auto& other) { return one.rows > other.rows; });
  for (const ContinuedGroup& group : groups) {
    if (slots.size() < blocks &&
        group.rows * kLanesOfAPass > shape.tokens * continued_lanes(shape)) {
      slots.push_back(group.slot);
    }
  }
  return slots;
}

bool continued_is_quicker(const ContinuedShape& shape, const std::vector<ContinuedGroup>& groups) {
  // Seen to be quicker where three eighths of the pass are saved and x is not too large to be read
  // as it lies; and a launch must be made good, in bytes that could have been moved.
  constexpr std::int64_t kMostBytesOfX = 64'000'000;
  constexpr std::int64_t kLaunchBytes = 12'000'000;
  constexpr std::int64_t kBytesOfPass = 4;
  if (!continued_takes(shape) || shape.tokens * shape.depth * 2 > kMostBytesOfX) {
    return false;
  }
  const std::vector<std::int32_t> slots = continued_slots(shape, groups);
  std::int64_t rows = 0;
  for (const ContinuedGroup& group : groups) {
    const bool goes_on = std::find(slots.begin(), slots.end(), group.slot) != slots.end();
    rows += goes_on ? group.rows : 0;
  }
  const std::int64_t lanes = static_cast<std::int64_t>(slots.size()) * continued_lanes(shape);
  const std::int64_t saved_rows = rows - shape.tokens * lanes / kLanesOfAPass;
  return 8 * saved_rows >= 3 * shape.tokens &&
         saved_rows * shape.columns * kBytesOfPass > kLaunchBytes;
}

}  // namespace lora_bench::kernels
