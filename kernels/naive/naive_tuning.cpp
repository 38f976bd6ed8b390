#include "kernels/naive/naive_tuning.h"

#include "kernels/divide_up.h"

namespace lora_bench::kernels {
namespace {

NaiveTuning cover(std::int64_t items, std::int64_t items_per_block) {
  NaiveTuning tuning;
  const std::int64_t blocks = divide_up(items, items_per_block);
  tuning.blocks = blocks < kMaxBlocks ? blocks : kMaxBlocks;
  return tuning;
}

}  // namespace

NaiveTuning naive_shrink_tuning(std::int64_t tokens, std::int64_t slices, std::int64_t max_rank) {
  return cover(tokens * slices * max_rank, NaiveTuning{}.threads_per_block / kWarp);
}

NaiveTuning naive_expand_tuning(std::int64_t tokens, std::int64_t columns) {
  return cover(tokens * columns, NaiveTuning{}.threads_per_block);
}

std::int64_t naive_shrink_depth(std::int64_t in_features) {
  constexpr std::int64_t kShuffles = 5;
  return divide_up(in_features, kWarp) + kShuffles;
}

std::int64_t naive_expand_depth(std::int64_t max_rank) {
  constexpr std::int64_t kBiasAndY = 2;
  return max_rank + kBiasAndY;
}

}  // namespace lora_bench::kernels
