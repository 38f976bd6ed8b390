#pragma once

#include "kernels/bgmv/bgmv.h"
#include "kernels/segment/segment.cuh"
#include "kernels/segment/vectors.cuh"

namespace lora_bench::kernels {

// A block owns kLanes lanes of one (token, slice): every thread multiplies its share of K into one
// sum a lane, kLanes independent 16-byte loads of A in flight for each one of x; then shuffles,
// then the four warps in their order. The same bits whatever else is in the batch. Bound: memory,
// every A read as often as it has rows.
template <typename T, typename H, int kVector, int kLanes>
__global__ void __launch_bounds__(kBgmvThreads)
    bgmv_shrink(const __grid_constant__ ShrinkParams params) {
  constexpr int kWarps = kBgmvThreads / 32;
  __shared__ float warp_sums[kWarps][kLanes];
  const std::int64_t lane_groups = (params.max_rank + kLanes - 1) / kLanes;
  const std::int64_t items = params.tokens * params.slices * lane_groups;
  const int thread = static_cast<int>(threadIdx.x);
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const std::int64_t first = item % lane_groups * kLanes;
    const std::int64_t slice = item / lane_groups % params.slices;
    const std::int64_t token = item / lane_groups / params.slices;
    const std::int64_t adapter = params.adapter_of_token[token];
    if (adapter < 0 || first >= params.rank[adapter]) {
      continue;  // the whole block
    }
    const std::int64_t rank = params.rank[adapter];
    const T* x = static_cast<const T*>(params.x) + token * params.x_stride;
    const T* a[kLanes];
#pragma unroll
    for (int l = 0; l < kLanes; ++l) {
      // Lanes past the rank repeat the last one: no branch in the loop, nothing else read.
      const std::int64_t lane = first + l < rank ? first + l : rank - 1;
      a[l] = static_cast<const T*>(params.a[slice]) +
             (adapter * params.max_rank + lane) * params.in_features;
    }
    float sum[kLanes] = {};
#pragma unroll(kLanes == 1 ? 4 : 2)
    for (std::int64_t k = thread * kVector; k < params.in_features; k += kBgmvThreads * kVector) {
      float x_values[kVector];
      load_floats<kVector>(x, k, params.in_features, x_values);
#pragma unroll
      for (int l = 0; l < kLanes; ++l) {
        float a_values[kVector];
        load_floats<kVector>(a[l], k, params.in_features, a_values);
#pragma unroll
        for (int i = 0; i < kVector; ++i) {
          sum[l] = fmaf(x_values[i], a_values[i], sum[l]);
        }
      }
    }
#pragma unroll
    for (int l = 0; l < kLanes; ++l) {
      for (int distance = 16; distance > 0; distance /= 2) {
        sum[l] += __shfl_xor_sync(0xFFFFFFFFU, sum[l], distance);
      }
      if (thread % 32 == 0) {
        warp_sums[thread / 32][l] = sum[l];
      }
    }
    __syncthreads();  // every warp's sums are there
    if (thread < kLanes && first + thread < rank) {
      float total = warp_sums[0][thread];
      for (int warp = 1; warp < kWarps; ++warp) {
        total += warp_sums[warp][thread];
      }
      const float scale = params.scale == nullptr ? 1.0F : params.scale[adapter];
      static_cast<H*>(
          params.h)[(slice * params.tokens + token) * params.max_rank + first + thread] =
          from_float<H>(scale * total);
    }
    __syncthreads();  // they have been read
  }
}

template <int kVector, typename T>
__device__ inline void accumulate(const float (&h)[kVector], const T* b, std::int64_t at,
                                  std::int64_t rank, float& sum) {
  float b_values[kVector];
  load_floats<kVector>(b, at, rank, b_values);
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    sum = fmaf(h[i], b_values[i], sum);
  }
}

// A block owns a tile of columns of one token. As many neighbouring threads as a row of B has
// vectors (a power of two, at most a warp) share a column: their loads are one run of memory, h
// stays in registers, four columns are in flight; a tree of shuffles adds up. The order depends on
// the rank alone. Bound: memory, every B read as often as it has rows.
template <typename T, typename H, int kVector>
__global__ void __launch_bounds__(kBgmvThreads)
    bgmv_expand(const __grid_constant__ ExpandParams params, std::int64_t columns_per_tile,
                std::int64_t column_tiles) {
  constexpr int kColumns = 4;
  const std::int64_t items = params.tokens * column_tiles;
  const int thread = static_cast<int>(threadIdx.x);
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const std::int64_t token = item / column_tiles;
    const std::int64_t adapter = params.adapter_of_token[token];
    if (adapter < 0 || params.rank[adapter] == 0) {
      continue;
    }
    const ColumnTile tile = column_tile(params, item % column_tiles, columns_per_tile);
    const std::int64_t width = params.width[tile.slice];
    const std::int64_t end =
        tile.first + columns_per_tile < width ? tile.first + columns_per_tile : width;
    const std::int64_t rank = params.rank[adapter];
    const int vectors = static_cast<int>((rank + kVector - 1) / kVector);
    const int sharing = vectors >= 32 ? 32 : vectors == 1 ? 1 : 1 << (32 - __clz(vectors - 1));
    const int part = thread % sharing;
    const int columns_at_once = kBgmvThreads / sharing;
    const H* h =
        static_cast<const H*>(params.h) + (tile.slice * params.tokens + token) * params.max_rank;
    const T* b = static_cast<const T*>(params.b[tile.slice]) + adapter * width * params.max_rank;
    const T* bias = static_cast<const T*>(params.bias[tile.slice]);
    T* y = static_cast<T*>(params.y) + token * params.y_stride + tile.slice_start;
    const float scale = params.scale == nullptr ? 1.0F : params.scale[adapter];
    float h_values[kVector];
    load_floats<kVector>(h, part * kVector, rank, h_values);
    // The bounds are the same for all threads of a warp: the shuffles need them all.
    for (std::int64_t base = tile.first; base < end; base += kColumns * columns_at_once) {
      std::int64_t column[kColumns];
      float sum[kColumns] = {};
      float before[kColumns] = {};
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        column[j] = base + j * columns_at_once + thread / sharing;
        if (params.add_inputs && part == 0 && column[j] < end) {
          before[j] = to_float(y[column[j]]);
        }
      }
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        const T* row = b + (column[j] < end ? column[j] : end - 1) * params.max_rank;
        accumulate<kVector>(h_values, row, part * kVector, rank, sum[j]);
      }
      for (std::int64_t at = (part + sharing) * kVector; at < rank; at += sharing * kVector) {
        float more[kVector];
        load_floats<kVector>(h, at, rank, more);
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          const T* row = b + (column[j] < end ? column[j] : end - 1) * params.max_rank;
          accumulate<kVector>(more, row, at, rank, sum[j]);
        }
      }
      for (int distance = sharing / 2; distance > 0; distance /= 2) {
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          sum[j] += __shfl_xor_sync(0xFFFFFFFFU, sum[j], distance);
        }
      }
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        if (part == 0 && column[j] < end) {
          float value = scale * sum[j];
          if (bias != nullptr) {
            value += to_float(bias[adapter * width + column[j]]);
          }
          y[column[j]] = from_float<T>(params.add_inputs ? value + before[j] : value);
        }
      }
    }
  }
}

}  // namespace lora_bench::kernels
