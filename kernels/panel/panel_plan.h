#pragma once

#include <cstdint>

#include "kernels/panel/panel.h"

namespace lora_bench::kernels {

// How a block finds its way, beside the parameters of the op.
struct PanelShrinkPlan {
  PanelSums sums;
  std::int32_t chain = 0;  // elements of K
  std::int32_t lane_tiles = 1;
  std::int32_t split = 1;
  std::int32_t levels = 0;  // a part is the sum of 1 << levels chains
};

// The same beside weights of eight bits.
struct PanelShrinkEightPlan : PanelShrinkPlan {
  bool e5m2 = false;  // else e4m3
};

struct PanelExpandPlan {
  PanelSums sums;           // sums.sums null: h comes from params.h as it is stored
  std::int32_t chunks = 1;  // blocks that share the column tiles of a row tile
  std::int32_t tiles = 1;   // column tiles of all slices
};

// The same beside weights of eight bits. Scales of A go into h as it is read.
struct PanelExpandEightPlan : PanelExpandPlan {
  WeightScales scales;
};

}  // namespace lora_bench::kernels
