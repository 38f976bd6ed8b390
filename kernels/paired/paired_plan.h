#pragma once

#include <cstdint>

namespace lora_bench::kernels {

// Where the sums of shrink go and how K is cut.
struct PairedShrinkPlan {
  float* sums = nullptr;  // [parts][slices][tokens][max_rank]
  std::int64_t lane_tiles = 0;
  std::int64_t group_depth = 0;  // elements of K
  std::int32_t groups = 1;
  std::int32_t parts = 1;  // 1: a block adds all groups; else one group a block
};

// Where the h of expand comes from and what is known of the addresses.
struct PairedExpandPlan {
  const float* sums = nullptr;
  const float* scale = nullptr;  // of shrink
  std::int64_t elements = 0;     // of one part
  std::int64_t column_tiles = 0;
  std::int64_t columns_per_tile = 0;
  std::int32_t parts = 1;
  bool vector_y = false;
  bool holds_h = true;  // in shared memory, for all columns of a block
};

}  // namespace lora_bench::kernels
