#pragma once

#include <cstdint>

#include "kernels/params.h"

namespace lora_bench::kernels {

// How a block finds its way, beside the parameters of the op. Offsets and pitches are bytes of
// shared memory.
struct ResidentPlan {
  std::int32_t cluster = 1;     // blocks
  std::int32_t chain = 0;       // elements of K
  std::int32_t lane_pitch = 0;  // of A
  std::int32_t sums_pitch = 0;  // floats of a row of sums
  std::int32_t sums = 0;        // offset
  std::int32_t x = 0;
  std::int32_t x_rows = 8;  // that lie there, of a chain
  std::int32_t a = 0;
  std::int32_t b = 0;
  std::int32_t units_each = 0;  // of 32 columns, over all slices, that every block has
  std::int32_t units_more = 0;  // blocks that have one more, the first ones
  bool linked = false;          // reads what is old before the kernel before this one has ended
};

// The same beside weights of eight bits.
struct ResidentEightPlan : ResidentPlan {
  std::int32_t a_scales = 0;  // offset: floats, a lane each in the order of a row of sums
  WeightScales scales;
};

}  // namespace lora_bench::kernels
