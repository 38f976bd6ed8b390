#include "kernels/streamed/streamed_tuning.h"

#include "kernels/divide_up.h"

namespace lora_bench::kernels {

bool streamed_takes(const StreamedShape& shape) {
  constexpr int kLeastCapability = 90;
  constexpr std::int64_t kElementBytes = 2;
  constexpr std::int64_t kVector = 8;  // elements of 16 bytes
  return shape.compute_capability >= kLeastCapability && shape.element_bytes == kElementBytes &&
         shape.tokens > 0 && shape.tokens <= kStreamedMostTokens && shape.columns > 0 &&
         shape.columns % kStreamedRows == 0 && shape.depth > 0 &&
         shape.depth % kStreamedGroup == 0 && shape.x_stride % kVector == 0;
}

int streamed_units_together(std::int64_t tokens, std::int64_t units, bool adapters) {
  constexpr std::int64_t kFewTokens = 2;  // x of so many is little beside W
  // Where a block has but two units, both would end last, and then what adapters add to them.
  const bool end_at_once = adapters && units <= 2;
  return tokens <= kFewTokens || end_at_once ? 1 : 2;
}

std::int64_t streamed_base_depth(const StreamedShape& shape) {
  constexpr std::int64_t kWarps = 8;
  constexpr std::int64_t kStage = 1024;
  return divide_up(shape.depth, kStage) * (kStage / kWarps) + kWarps;
}

std::int64_t streamed_hidden_depth(const StreamedShape& shape) {
  const std::int64_t groups = divide_up(shape.depth, kStreamedGroup);
  constexpr std::int64_t kPairs = 5;  // 32 splits, added in pairs
  static_assert(kStreamedSplits == 1 << kPairs);
  return divide_up(groups, kStreamedSplits) * kStreamedGroup + kPairs;
}

bool streamed_takes_adapters(const StreamedShape& shape, const StreamedAdaptersShape& adapters) {
  constexpr std::int64_t kLanes = 8;  // of 16 bytes
  if (adapters.active == 0 || adapters.slices == 0 || adapters.max_rank == 0 ||
      adapters.max_rank % kLanes != 0 || adapters.active * adapters.max_rank > kStreamedLanes ||
      adapters.slices * shape.tokens * adapters.max_rank > kStreamedHidden ||
      adapters.first_column % kStreamedRows != 0) {
    return false;
  }
  for (std::int64_t slice = 0; slice < adapters.slices; ++slice) {
    if (adapters.widths[slice] % kStreamedRows != 0) {
      return false;
    }
  }
  return true;
}

std::int64_t streamed_words(const StreamedShape& shape, std::int64_t slices,
                            std::int64_t max_rank) {
  constexpr std::int64_t kSets = 2;
  return kSets * kStreamedSplits * slices * shape.tokens * max_rank;
}

}  // namespace lora_bench::kernels
