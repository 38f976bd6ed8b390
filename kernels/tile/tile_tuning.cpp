#include "kernels/tile/tile_tuning.h"

#include "kernels/divide_up.h"

namespace lora_bench::kernels {

ExpandTile expand_tile_for(int rows_per_tile, std::int64_t max_rank, bool vectors) {
  if (!vectors) {
    return {};
  }
  if (rows_per_tile > 16) {
    return {max_rank <= 16 ? 16 : 64, 128};
  }
  if (max_rank <= 16) {
    return {16, 512};
  }
  return max_rank <= 32 ? ExpandTile{32, 256} : ExpandTile{};
}

std::int64_t tile_shrink_depth(std::int64_t in_features, std::int64_t split) {
  constexpr std::int64_t kOneStep = 17;
  constexpr std::int64_t kWarps = 8;
  const std::int64_t steps = divide_up(divide_up(in_features, split) + 512, 16);
  return 2 * steps + kOneStep + kWarps + split;
}

std::int64_t tile_expand_depth(std::int64_t max_rank, bool wide_intermediate) {
  constexpr std::int64_t kOneStep = 17;
  constexpr std::int64_t kScaleBiasAndY = 3;
  constexpr std::int64_t kTerms = 6;  // of an fp32 h: at most three times two
  const std::int64_t steps = divide_up(max_rank, 16) * (wide_intermediate ? kTerms : 1);
  return 2 * steps + kOneStep + kScaleBiasAndY;
}

}  // namespace lora_bench::kernels
