#pragma once

#include <cstdint>

#include "kernels/asynchronous.cuh"
#include "kernels/clustered/clustered_plan.h"
#include "kernels/clustered/clustered_tuning.h"
#include "kernels/clustered/hidden.cuh"
#include "kernels/clustered/places.cuh"

// The way of the sums of chains through a cluster where lanes are many: those of a lane go to the
// block that owns it, which adds them and sends h to all.
namespace lora_bench::kernels {

// `owned` tiles of 8 lanes, of all slices, or what is left of them.
struct OwnLanes {
  int first_tile;
  int tiles;
  int tiles_of_slice;
  int count;  // whole pairs
  float per_block;
};

__device__ inline OwnLanes own_lanes_of(int owned, int block, int slices, int rank) {
  OwnLanes own;
  own.tiles_of_slice = (rank + 7) / 8;
  const int all = slices * own.tiles_of_slice;
  own.first_tile = min(block * owned, all);
  own.tiles = min(all - own.first_tile, owned);
  // The last tile of a slice may have fewer than eight.
  const int ends =
      (own.first_tile + own.tiles) / own.tiles_of_slice - own.first_tile / own.tiles_of_slice;
  own.count = 8 * own.tiles - ends * (8 * own.tiles_of_slice - (rank + 1) / 2 * 2);
  own.per_block = inverse_of(owned);
  return own;
}

// By all threads of the block that has all sums of its own lanes.
__device__ inline void share_lanes(const ClusteredPlan& plan, const char* sums, std::uint32_t h,
                                   std::uint32_t barrier, const OwnLanes& own, int rows, int rank) {
  const float per_row = inverse_of(max(2 * own.tiles, 1));
  const float per_slice = inverse_of(own.tiles_of_slice);
#pragma unroll 1
  for (int item = static_cast<int>(threadIdx.x); item < 2 * own.tiles * rows;
       item += static_cast<int>(blockDim.x)) {
    const int row = divide(item, per_row);
    const int local = (item - row * 2 * own.tiles) * 4;
    const int tile = own.first_tile + local / 8;
    const int slice = divide(tile, per_slice);
    const int lane = (tile - slice * own.tiles_of_slice) * 8 + local % 8;
    if (lane < rank) {
      const float4 all = add_chains(sums + (row * plan.sums_pitch + local) * 4,
                                    kClusteredRows * plan.sums_pitch * 4);
      const std::uint32_t at = h + (row * plan.h_pitch + slice * plan.lane_pitch + lane) * 4;
#pragma unroll 4
      for (int to = 0; to < plan.cluster; ++to) {
        send_four(in_block(at, to), all, in_block(barrier, to));
      }
    }
  }
}

}  // namespace lora_bench::kernels
