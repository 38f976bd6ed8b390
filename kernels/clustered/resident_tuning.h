#pragma once

#include <cstdint>

#include "kernels/clustered/clustered_tuning.h"

namespace lora_bench::kernels {

struct ResidentTuning {
  std::int64_t tiles = 0;  // of rows of one adapter, a cluster each; 0: nothing to do, no launch
  int eights = 1;          // of rows in a tile, 1 or 2
  int cluster = 1;         // blocks, up to 16
  int groups = 1;          // clusters that share the columns of a tile
  int warps = 4;           // of a block
  int sums = 0;            // offsets in shared memory: sums of chains, x, A, B
  int x = 0;
  int x_rows = 8;  // that there is room for, of a tile
  int a = 0;
  int b = 0;
  int a_scales = 0;    // offset of A's, where weights have eight bits
  int lane_pitch = 0;  // bytes of a lane of A
  int shared_bytes = 0;
  bool fits = true;  // else there is no such launch

  friend bool operator==(const ResidentTuning&, const ResidentTuning&) = default;
};

constexpr int kResidentMostWarps = 8;
// Rows of x and lanes of A lie so many bytes further apart than they are long, an odd number of 16
// on from a multiple of 64: the same eight elements of eight of them are on different banks.
constexpr int kResidentPad = 16;
constexpr int kResidentColumns = 32;  // of a unit, which a warp multiplies at a time

// Not `fits` where `clustered` is the better one.
[[nodiscard]] ResidentTuning resident_tuning(const ClusteredShape& shape);

}  // namespace lora_bench::kernels
