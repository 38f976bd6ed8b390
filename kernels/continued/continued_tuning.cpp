#include "kernels/continued/continued_tuning.h"

#include <algorithm>

#include "kernels/divide_up.h"
#include "kernels/params.h"

namespace lora_bench::kernels {
namespace {

constexpr std::int64_t kVector = 8;         // elements of 16 bytes
constexpr std::int64_t kLine = 64;          // elements of 128 bytes
constexpr std::int64_t kLeastTokens = 257;  // below, others hide what adapters add
constexpr std::int64_t kMostLanes = 256;
// So many more columns of the product take as long as y takes to be read and written once more: 2
// flops against 4 bytes, at 650 TFLOP/s and 4 TB/s.
constexpr std::int64_t kLanesOfAPass = 325;

}  // namespace

std::int64_t continued_lanes(const ContinuedShape& shape) {
  return (shape.wide_hidden ? 2 : 1) * shape.slices * shape.max_rank;
}

std::int64_t continued_blocks(const ContinuedShape& shape) {
  return std::min({shape.slots, kContinuedBlocks, kMostLanes / continued_lanes(shape)});
}

std::int64_t continued_room(const ContinuedShape& shape) {
  return divide_up(continued_blocks(shape) * continued_lanes(shape), kLine) * kLine;
}

bool continued_takes(const ContinuedShape& shape) {
  return shape.tokens >= kLeastTokens && shape.columns % kVector == 0 && shape.slots > 0 &&
         shape.slices > 0 && shape.slices <= kMaxSlices && shape.max_rank > 0 &&
         shape.max_rank % kVector == 0 && continued_lanes(shape) <= kMostLanes;
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
  // Of a launch more, in bytes that could have been moved.
  constexpr std::int64_t kLaunchBytes = 12'000'000;
  constexpr std::int64_t kBytesOfPass = 4;
  if (!continued_takes(shape)) {
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
  return saved_rows * shape.columns * kBytesOfPass > kLaunchBytes;
}

}  // namespace lora_bench::kernels
