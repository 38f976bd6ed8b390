#pragma once

#include <cstdint>

namespace lora_bench::kernels {

// A one-dimensional grid. Kernels stride over it, so that any number of blocks is right; y and z
// stay 1 because they end at 65535.
struct NaiveTuning {
  std::int64_t blocks = 0;  // 0: nothing to do, no launch
  int threads_per_block = 256;

  friend bool operator==(const NaiveTuning&, const NaiveTuning&) = default;
};

constexpr std::int64_t kMaxBlocks = 2147483647;
constexpr int kWarp = 32;

// One warp for each (token, slice, lane).
[[nodiscard]] NaiveTuning naive_shrink_tuning(std::int64_t tokens, std::int64_t slices,
                                              std::int64_t max_rank);
// One thread for each (token, column).
[[nodiscard]] NaiveTuning naive_expand_tuning(std::int64_t tokens, std::int64_t columns);

// Additions on the longest path of one sum, as the kernels do them.
[[nodiscard]] std::int64_t naive_shrink_depth(std::int64_t in_features);
[[nodiscard]] std::int64_t naive_expand_depth(std::int64_t max_rank);

}  // namespace lora_bench::kernels
