#pragma once

#include <cstdint>

#include "kernels/params.h"
#include "kernels/segment/segment.cuh"

// Where a block finds its panel: rows of one adapter.
namespace lora_bench::kernels {

// The tile of that number: first all tiles that are full, then what is left of each group. So the
// costly ones start first. rows 0 when there are fewer.
template <typename Params>
__device__ inline Segment find_panel(const Params& params, int tile, int rows_per_tile) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  std::int32_t start = 0;
  std::int32_t rows = 0;
  std::int32_t id = -1;
  const auto load = [&](int first_group) {
    const int group = first_group + lane;
    rows = 0;
    if (group < params.active) {
      start = params.group_starts[group];
      rows = params.group_starts[group + 1] - start;
      id = params.active_ids[group];
    }
  };
  const auto sum_up_to = [&](int own) {
    int up_to = own;
    for (int distance = 1; distance < 32; distance *= 2) {
      const int other = __shfl_up_sync(0xFFFFFFFFU, up_to, distance);
      up_to += lane >= distance ? other : 0;
    }
    return up_to;
  };
  for (int rest = 0; rest < 2; ++rest) {
    for (int first_group = 0; first_group < params.active; first_group += 32) {
      if (rest == 0 || params.active > 32) {
        load(first_group);
      }
      const int full = rows / rows_per_tile;
      const int own = rest == 0 ? full : (rows % rows_per_tile != 0 ? 1 : 0);
      const int up_to = sum_up_to(own);
      const unsigned later = __ballot_sync(0xFFFFFFFFU, tile < up_to);
      if (later != 0) {
        const int owner = __ffs(static_cast<int>(later)) - 1;
        const int before = __shfl_sync(0xFFFFFFFFU, up_to - own, owner);
        const int start_of = __shfl_sync(0xFFFFFFFFU, start, owner);
        const int rows_of = __shfl_sync(0xFFFFFFFFU, rows, owner);
        Segment segment;
        segment.adapter = __shfl_sync(0xFFFFFFFFU, id, owner);
        if (rest == 0) {
          segment.first = start_of + (tile - before) * rows_per_tile;
          segment.rows = rows_per_tile;
        } else {
          segment.first = start_of + rows_of / rows_per_tile * rows_per_tile;
          segment.rows = rows_of % rows_per_tile;
        }
        return segment;
      }
      tile -= __shfl_sync(0xFFFFFFFFU, up_to, 31);
    }
  }
  return {};
}

}  // namespace lora_bench::kernels
