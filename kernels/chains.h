#pragma once

#include <cstdint>

#include "kernels/divide_up.h"

namespace lora_bench::kernels {

// The order of sums that `clustered` and `panel` share, so that which of them runs changes no bit:
// K is cut into eight chains of a multiple of 32 elements, each one sum on tensor cores, 16
// neighbours at a time, added in pairs of neighbours (chains.cuh); the rank is one sum in steps of
// 16, an fp32 h in three parts, the lowest first. It follows from in_features and the rank alone.
constexpr int kChains = 8;
constexpr int kChainLevels = 3;  // of the tree that adds them

[[nodiscard]] constexpr std::int64_t chain_length(std::int64_t in_features) {
  return 32 * divide_up(in_features, std::int64_t{32} * kChains);
}

// Additions on the longest path of one sum; on tensor cores every product counts as one, as
// hardware may cut each term to the largest.
[[nodiscard]] constexpr std::int64_t chains_shrink_depth(std::int64_t in_features) {
  return chain_length(in_features) + kChainLevels;
}

[[nodiscard]] constexpr std::int64_t chains_expand_depth(std::int64_t max_rank, bool fp32_h) {
  constexpr std::int64_t kBiasAndY = 2;
  return (fp32_h ? 3 : 1) * max_rank + kBiasAndY;
}

}  // namespace lora_bench::kernels
