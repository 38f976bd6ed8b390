#pragma once

#include <cstdint>

#include "kernels/params.h"

namespace lora_bench::kernels {

// How a block finds its way, beside the parameters of the op.
struct ClusteredPlan {
  std::int32_t cluster = 1;     // blocks
  std::int32_t chain = 0;       // elements of K
  std::int32_t lane_pitch = 8;  // of a slice in a row of sums: max_rank up to a multiple of 8
  std::int32_t sums_pitch = 0;  // floats of a row of sums
  std::int32_t owned = 0;       // tiles of 8 lanes that a block adds for all; 0: each adds all
  std::int32_t h_pitch = 0;     // floats of a row of h, where blocks add for one another
  std::int32_t slots = 1;       // of the ring of a warp
  std::int32_t slot_bytes = 0;
  std::int32_t piece = 0;         // elements of K in a slot, of eight lanes
  std::int32_t piece_pitch = 0;   // bytes from lane to lane there
  std::int32_t hidden_bytes = 0;  // h as fragments
  std::int32_t x_bytes = 0;
  std::int32_t units_each = 0;  // of 64 columns, over all slices, that every block has
  std::int32_t units_more = 0;  // blocks that have one more, the first ones
  bool linked = false;          // reads what is old before the kernel before this one has ended
  // Of a launch that serves any batch.
  std::int32_t units = 0;        // of columns, over all slices
  std::int32_t most_groups = 1;  // of parts of clusters that share a tile
  std::int32_t most_shared = 0;  // blocks of all parts that share tiles
};

// The same beside weights of eight bits.
struct EightBitsPlan : ClusteredPlan {
  WeightScales scales;
};

}  // namespace lora_bench::kernels
