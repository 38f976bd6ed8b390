#pragma once

#include <cstdint>

#include "kernels/asynchronous.cuh"
#include "kernels/params.h"
#include "kernels/segment/segment.cuh"

// Where a block finds its rows and columns, in few instructions.
namespace lora_bench::kernels {

// find_segment for up to 128 groups with one wait for memory, in whose shadow `meanwhile` runs.
template <typename Params, typename Meanwhile>
__device__ inline Segment find_segment_while(const Params& params, int tile, int rows_per_tile,
                                             const Meanwhile& meanwhile) {
  constexpr int kRounds = 4;
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int first_group = 0; first_group < params.active; first_group += 32 * kRounds) {
    std::int32_t start[kRounds] = {};
    std::int32_t rows[kRounds] = {};
    std::int32_t id[kRounds] = {};
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      const int group = first_group + 32 * i + lane;
      if (group < params.active) {
        start[i] = params.group_starts[group];
        rows[i] = params.group_starts[group + 1] - start[i];
        id[i] = params.active_ids[group];
      }
    }
    if (first_group == 0) {
      meanwhile();
    }
    Segment segment;
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      if (first_group + 32 * i >= params.active) {
        continue;
      }
      const int tiles = (rows[i] + rows_per_tile - 1) / rows_per_tile;
      int up_to = tiles;  // of this group and those before it
#pragma unroll
      for (int distance = 1; distance < 32; distance *= 2) {
        const int other = __shfl_up_sync(0xFFFFFFFFU, up_to, distance);
        up_to += lane >= distance ? other : 0;
      }
      const unsigned later = __ballot_sync(0xFFFFFFFFU, tile < up_to);
      const int owner = later != 0 ? __ffs(static_cast<int>(later)) - 1 : 0;
      const int before = __shfl_sync(0xFFFFFFFFU, up_to - tiles, owner);
      const int first = __shfl_sync(0xFFFFFFFFU, start[i], owner);
      const int count = __shfl_sync(0xFFFFFFFFU, rows[i], owner);
      const int adapter = __shfl_sync(0xFFFFFFFFU, id[i], owner);
      if (later != 0 && segment.rows == 0) {
        const int skipped = (tile - before) * rows_per_tile;
        segment.adapter = adapter;
        segment.first = first + skipped;
        segment.rows = count - skipped < rows_per_tile ? count - skipped : rows_per_tile;
      }
      tile -= __shfl_sync(0xFFFFFFFFU, up_to, 31);
    }
    if (segment.rows > 0) {
      return segment;
    }
  }
  return {};
}

// A tile of rows of one adapter, and what a block knows of it before x is there.
struct TileOfRows {
  Segment segment;
  int rank = 0;                // 0: nothing to do
  std::int32_t own_token = 0;  // of row `lane`
  std::int32_t own_x_row = 0;  // ... which it reads
  float own_factor = 1.0F;     // ... of its delta
  float shrink_scale = 1.0F;
  float scale = 1.0F;

  // What sums of a row are multiplied by: the adapter's scale and the factor of the row. Of all
  // threads of a warp together; a row behind the last one has that of the first.
  __device__ float scale_of_row(int row) const {
    return __fmul_rn(scale, __shfl_sync(0xFFFFFFFFU, own_factor, row));
  }
};

// A barrier of the block and `own_barriers` of this warp from `barriers` on, and word to the
// cluster that they are there.
__device__ inline void begin_barriers(std::uint32_t of_block, std::uint32_t barriers,
                                      int own_barriers) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (lane < own_barriers) {
    begin_barrier(barriers + 8 * lane);
  }
  if (threadIdx.x == 0) {
    begin_barrier(of_block);
  }
  publish_barriers();
  __syncwarp();
  arrive_in_cluster();
}

__device__ inline TileOfRows tile_of_rows(const ShrinkParams& s, const ExpandParams& e,
                                          const Segment& segment) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  TileOfRows tile;
  tile.segment = segment;
  if (segment.rows > 0) {
    tile.rank = s.rank[segment.adapter];
    tile.own_token = s.token_order[segment.first + (lane < segment.rows ? lane : 0)];
    tile.own_x_row = row_of_x(s, tile.own_token);
    if (e.factor != nullptr) {
      tile.own_factor = e.factor[tile.own_token];
    }
    if (s.scale != nullptr) {
      tile.shrink_scale = s.scale[segment.adapter];
    }
    if (e.scale != nullptr) {
      tile.scale = e.scale[segment.adapter];
    }
  }
  return tile;
}

__device__ inline TileOfRows find_tile(const ShrinkParams& s, const ExpandParams& e, int number,
                                       int rows_per_tile, std::uint32_t of_block,
                                       std::uint32_t barriers, int own_barriers) {
  return tile_of_rows(s, e, find_segment_while(s, number, rows_per_tile, [&]() {
                        begin_barriers(of_block, barriers, own_barriers);
                      }));
}

// Quotients of small numbers: exact for a below 2^18.
__device__ inline float inverse_of(int a) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(static_cast<float>(a)));
  return inverse;
}
__device__ inline int divide(int a, float inverse) {
  return static_cast<int>((static_cast<float>(a) + 0.5F) * inverse);
}

// Where a run of units of columns begins.
struct UnitPlace {
  int unit;  // of all
  int slice;
  int column;  // of the slice
  int width;
  std::int64_t start;  // of the slice in y
};

__device__ inline UnitPlace place_of_unit(const ExpandParams& params, int unit, int columns) {
  UnitPlace place{unit, 0, unit * columns, static_cast<int>(params.width[0]), params.first_column};
  const auto whole = [&]() { return (place.width + columns - 1) / columns * columns; };
#pragma unroll 1
  while (place.column >= whole() && place.slice + 1 < params.slices) {
    place.column -= whole();
    place.start += place.width;
    ++place.slice;
    place.width = static_cast<int>(params.width[place.slice]);
  }
  return place;
}

// Past `units` of one slice.
__device__ inline void go_on(const ExpandParams& params, UnitPlace& place, int units, int columns) {
  place.unit += units;
  place.column += units * columns;
#pragma unroll 1
  while (place.column >= place.width && place.slice + 1 < params.slices) {
    place.start += place.width;
    ++place.slice;
    place.column = 0;
    place.width = static_cast<int>(params.width[place.slice]);
  }
}

}  // namespace lora_bench::kernels
