#pragma once

#include "kernels/clustered/clustered_plan.h"
#include "kernels/clustered/clustered_tuning.h"
#include "kernels/clustered/places.cuh"

// A launch that serves any batch within its limits, as a captured graph has it: how many tiles of
// rows there are is known on the device alone. A cluster is divided into parts of as many blocks as
// find place for every tile; a part is to its tile what a whole cluster is elsewhere.
namespace lora_bench::kernels {

struct Part {
  int blocks;  // of the part
  int first;   // its first block of the cluster
  int block;   // this one of the part
  int group;   // of the parts that share the columns of a tile, each with h of its own
  int groups;
  int tile;  // -1: none is left
};

// The largest parts of which there are enough. Tiles that follow one another are of other clusters,
// so that they are spread over the device. Parts share a tile while `most_shared` blocks have
// enough of them.
__device__ inline Part part_of_tiles(int tiles, int most_groups, int most_shared) {
  const int clusters = static_cast<int>(gridDim.y);
  const int blocks = static_cast<int>(gridDim.x);
  const int own = static_cast<int>(blockIdx.x);
  Part part{};
  const int needed = divide(tiles + clusters - 1, inverse_of(clusters));  // of a cluster
  part.blocks = max(divide(blocks, inverse_of(max(needed, 1))), 1);
  const float per_part = inverse_of(part.blocks);
  const int of_cluster = divide(blocks, per_part);
  const int place = divide(own, per_part);
  part.first = place * part.blocks;
  part.block = own - part.first;
  const int number = place * clusters + static_cast<int>(blockIdx.y);
  const float per_tiles = inverse_of(max(tiles, 1));
  const int shared = divide(min(divide(most_shared, per_part), of_cluster * clusters), per_tiles);
  part.groups = max(min(shared, most_groups), 1);
  part.group = divide(number, per_tiles);
  const bool idle = tiles == 0 || place >= of_cluster || part.group >= part.groups;
  part.tile = idle ? -1 : number - part.group * tiles;
  return part;
}

// Groups of rows as a warp has them, several a lane.
template <int kRounds>
struct GroupsOfWarp {
  static constexpr int kCount = 32 * kRounds;
  std::int32_t start[kRounds];
  std::int32_t rows[kRounds];
  std::int32_t id[kRounds];

  __device__ void load(const ShrinkParams& params, int first_group) {
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      const int group = first_group + 32 * i + static_cast<int>(threadIdx.x % 32);
      start[i] = rows[i] = 0;
      id[i] = -1;
      if (group < params.active) {
        start[i] = params.group_starts[group];
        rows[i] = params.group_starts[group + 1] - start[i];
        id[i] = params.active_ids[group];
      }
    }
  }
  [[nodiscard]] __device__ int tiles(int round, int rows_per_tile) const {
    return (rows[round] + rows_per_tile - 1) / rows_per_tile;
  }
  // Of the whole warp.
  [[nodiscard]] __device__ int all_tiles(const ShrinkParams& params, int first_group,
                                         int rows_per_tile) const {
    int all = 0;
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      if (first_group + 32 * i < params.active) {
        all += tiles(i, rows_per_tile);
      }
    }
    return __reduce_add_sync(0xFFFFFFFFU, all);
  }
  // No rows where there are fewer tiles; `tile` is then counted from the last of them.
  [[nodiscard]] __device__ Segment find(const ShrinkParams& params, int first_group,
                                        int rows_per_tile, int& tile) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
    Segment segment;
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      if (first_group + 32 * i >= params.active || segment.rows > 0) {
        continue;
      }
      const int own = tiles(i, rows_per_tile);
      int up_to = own;
#pragma unroll
      for (int distance = 1; distance < 32; distance *= 2) {
        const int other = __shfl_up_sync(0xFFFFFFFFU, up_to, distance);
        up_to += lane >= distance ? other : 0;
      }
      const unsigned later = __ballot_sync(0xFFFFFFFFU, tile < up_to);
      if (later != 0) {
        const int owner = __ffs(static_cast<int>(later)) - 1;
        const int skipped = (tile - __shfl_sync(0xFFFFFFFFU, up_to - own, owner)) * rows_per_tile;
        segment.adapter = __shfl_sync(0xFFFFFFFFU, id[i], owner);
        segment.first = __shfl_sync(0xFFFFFFFFU, start[i], owner) + skipped;
        segment.rows = min(__shfl_sync(0xFFFFFFFFU, rows[i], owner) - skipped, rows_per_tile);
      }
      tile -= __shfl_sync(0xFFFFFFFFU, up_to, 31);
    }
    return segment;
  }
};

// The tile of this block's part, rows 0 for none; up to 256 groups are one wait for memory, in
// whose shadow `meanwhile` runs.
template <typename Meanwhile>
__device__ inline Segment find_segment_of_part(const ShrinkParams& params, int rows_per_tile,
                                               const ClusteredPlan& plan, Part& part,
                                               const Meanwhile& meanwhile) {
  GroupsOfWarp<8> groups;
  constexpr int kAtOnce = GroupsOfWarp<8>::kCount;
  groups.load(params, 0);
  meanwhile();
  int tiles = groups.all_tiles(params, 0, rows_per_tile);
#pragma unroll 1
  for (int first = kAtOnce; first < params.active; first += kAtOnce) {
    groups.load(params, first);
    tiles += groups.all_tiles(params, first, rows_per_tile);
  }
  part = part_of_tiles(tiles, plan.most_groups, plan.most_shared);
  Segment segment;
  int tile = part.tile;
#pragma unroll 1
  for (int first = 0; tile >= 0 && segment.rows == 0 && first < params.active; first += kAtOnce) {
    if (params.active > kAtOnce) {
      groups.load(params, first);
    }
    segment = groups.find(params, first, rows_per_tile, tile);
  }
  return segment;
}

// The tile of a block, and the part of the cluster that has it: all of it where the launch is for
// one batch.
template <bool kAnyBatch>
__device__ inline TileOfRows find_tile_and_part(const ShrinkParams& s, const ExpandParams& e,
                                                const ClusteredPlan& plan, std::uint32_t of_block,
                                                std::uint32_t barriers, Part& part) {
  if constexpr (kAnyBatch) {
    return tile_of_rows(s, e, find_segment_of_part(s, kClusteredRows, plan, part, [&]() {
                          begin_barriers(of_block, barriers, plan.slots);
                        }));
  } else {
    part = {plan.cluster,
            0,
            static_cast<int>(blockIdx.x),
            static_cast<int>(blockIdx.z),
            static_cast<int>(gridDim.z),
            static_cast<int>(blockIdx.y)};
    return find_tile(s, e, part.tile, kClusteredRows, of_block, barriers, plan.slots);
  }
}

// Units of columns that a block has.
struct UnitShare {
  int first;
  int count;
};

template <bool kAnyBatch>
__device__ inline UnitShare units_of_block(const ClusteredPlan& plan, const Part& part) {
  const int share = part.group * part.blocks + part.block;
  int each = plan.units_each;
  int more = plan.units_more;
  if constexpr (kAnyBatch) {
    const int shares = part.groups * part.blocks;
    each = divide(plan.units, inverse_of(shares));
    more = plan.units - each * shares;
  }
  return {share * each + min(share, more), each + (share < more ? 1 : 0)};
}

}  // namespace lora_bench::kernels
