#pragma once

#include "kernels/clustered/clustered_tuning.h"
#include "kernels/ordered/ordered_tuning.h"
#include "kernels/params.h"
#include "kernels/segment/fragments.cuh"
#include "kernels/segment/segment.cuh"
#include "kernels/segment/vectors.cuh"

// The sums of `auto` in their order, for any shape and alignment.
namespace lora_bench::kernels {

constexpr int kOrderedShrinkThreads = 32 * kChains;
constexpr int kOrderedExpandThreads = 128;

//   grid      (row tiles) x (lane tiles), the last fastest
//   block     a warp a chain of K; 16 rows of one adapter, 16 lanes counted over all slices
//   barrier   after K: the sums of all chains are there
template <typename T, typename H>
__global__ void __launch_bounds__(kOrderedShrinkThreads)
    ordered_shrink(const __grid_constant__ ShrinkParams params, std::int64_t lane_tiles) {
  constexpr int kTiles = kOrderedLanes / 8;
  __shared__ float sums[kChains][kOrderedRows][kOrderedLanes];
  const Segment segment = find_segment(params, blockIdx.x / lane_tiles, kOrderedRows);
  if (segment.rows == 0) {
    return;
  }
  const auto first_lane = static_cast<int>(blockIdx.x % lane_tiles) * kOrderedLanes;
  const int thread = static_cast<int>(threadIdx.x);
  const int chain = thread / 32;
  const int g = thread % 32 / 4;
  const int t = thread % 4;
  const auto rank = static_cast<int>(params.rank[segment.adapter]);
  const auto max_rank = static_cast<int>(params.max_rank);
  const T* row[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    row[i] =
        static_cast<const T*>(params.x) + token_of(params, segment, g + 8 * i) * params.x_stride;
  }
  const T* lane[kTiles];
  bool owned[kTiles];
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    const int slice = (first_lane + 8 * j + g) / max_rank;
    const int of_slice = (first_lane + 8 * j + g) % max_rank;
    owned[j] = slice < params.slices && of_slice < rank;
    lane[j] = static_cast<const T*>(params.a[owned[j] ? slice : 0]) +
              (segment.adapter * max_rank + (owned[j] ? of_slice : 0)) * params.in_features;
  }
  const std::int64_t length = (params.in_features + 32 * kChains - 1) / (32 * kChains) * 32;
  const std::int64_t start = chain * length;
  const std::int64_t end =
      start + length < params.in_features ? start + length : params.in_features;
  float sum[kTiles][4] = {};
  for (std::int64_t k = start; k < end; k += 32) {
    const uint4 top = load_eight<false>(row[0], k + 8 * t, end);
    const uint4 bottom = load_eight<false>(row[1], k + 8 * t, end);
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const uint4 eight = owned[j] ? load_eight<false>(lane[j], k + 8 * t, end) : uint4{};
      multiply_16<T>(sum[j], top.x, bottom.x, top.y, bottom.y, eight.x, eight.y);
      multiply_16<T>(sum[j], top.z, bottom.z, top.w, bottom.w, eight.z, eight.w);
    }
  }
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      sums[chain][g + 8 * (c / 2)][8 * j + 2 * t + c % 2] = sum[j][c];
    }
  }
  __syncthreads();
  const int of_row = thread / kOrderedLanes;
  const int packed = first_lane + thread % kOrderedLanes;
  const int slice = packed / max_rank;
  if (of_row < segment.rows && slice < params.slices && packed % max_rank < rank) {
    float whole = sums[0][of_row][thread % kOrderedLanes];
#pragma unroll
    for (int c = 1; c < kChains; ++c) {
      whole += sums[c][of_row][thread % kOrderedLanes];
    }
    if (params.scale != nullptr) {
      whole = __fmul_rn(params.scale[segment.adapter], whole);
    }
    const std::int64_t token = params.token_order[segment.first + of_row];
    static_cast<H*>(params.h)[(slice * params.tokens + token) * max_rank + packed % max_rank] =
        from_float<H>(whole);
  }
}
static_assert(kOrderedShrinkThreads == kOrderedRows * kOrderedLanes);

//   grid      (row tiles) x (column tiles), the last fastest
//   block     4 warps, each 16 rows of one adapter and 64 columns
template <typename T, typename H>
__global__ void __launch_bounds__(kOrderedExpandThreads)
    ordered_expand(const __grid_constant__ ExpandParams params, std::int64_t column_tiles) {
  constexpr int kTiles = 8;
  const Segment segment = find_segment(params, blockIdx.x / column_tiles, kOrderedRows);
  const int rank = segment.rows > 0 ? params.rank[segment.adapter] : 0;
  if (rank == 0) {
    return;
  }
  const int g = static_cast<int>(threadIdx.x) % 32 / 4;
  const int t = static_cast<int>(threadIdx.x) % 4;
  const ColumnTile tile = column_tile(params, blockIdx.x % column_tiles, kOrderedColumns);
  const std::int64_t width = params.width[tile.slice];
  const std::int64_t first = tile.first + threadIdx.x / 32 * 64;
  std::int64_t token[2];
  const H* hidden[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    token[i] = token_of(params, segment, g + 8 * i);
    hidden[i] =
        static_cast<const H*>(params.h) + (tile.slice * params.tokens + token[i]) * params.max_rank;
  }
  const T* b =
      static_cast<const T*>(params.b[tile.slice]) + segment.adapter * width * params.max_rank;
  float sum[kTiles][4] = {};
  for (int at = 4 * t; at < (rank + 15) / 16 * 16; at += 16) {
    HiddenFragment<T, H> rows;
    rows.load(load_four<false>(hidden[0], at, rank), load_four<false>(hidden[1], at, rank));
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const std::int64_t column = first + 8 * j + g;
      const uint2 four =
          column < width ? load_four<false>(b + column * params.max_rank, at, rank) : uint2{};
      rows.multiply(sum[j], four);
    }
  }
  const float scale = params.scale == nullptr ? 1.0F : params.scale[segment.adapter];
  const T* bias = static_cast<const T*>(params.bias[tile.slice]);
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const std::int64_t column = first + 8 * j + 2 * t + c % 2;
      if (g + 8 * (c / 2) < segment.rows && column < width) {
        float delta = __fmul_rn(scale, sum[j][c]);
        if (bias != nullptr) {
          delta = __fadd_rn(delta, to_float(bias[segment.adapter * width + column]));
        }
        T* y =
            static_cast<T*>(params.y) + token[c / 2] * params.y_stride + tile.slice_start + column;
        *y = from_float<T>(params.add_inputs ? __fadd_rn(delta, to_float(*y)) : delta);
      }
    }
  }
}

}  // namespace lora_bench::kernels
