#pragma once

#include "kernels/bgmv/bgmv.cuh"
#include "kernels/segment/fragments.cuh"

namespace lora_bench::kernels {

// A block owns 16 * kRows rows of one adapter times 8 * kLanes of its lanes, counted over all
// slices, so that x is read once for them all. Its eight warps take turns at 32 elements of K, each
// with all of the tile in registers and the next fragments on their way from memory; then they add
// up in a tree through shared memory. The sum's order depends on K alone. Bound: memory, A read
// once for each tile of rows.
template <typename T, typename H, bool kVectors, int kRows, int kLanes>
__global__ void __launch_bounds__(kSgmvShrinkThreads)
    sgmv_shrink(const __grid_constant__ ShrinkParams params, std::int64_t lane_tiles) {
  constexpr int kWarps = kSgmvShrinkThreads / 32;
  constexpr std::int64_t kStep = 32 * kWarps;
  __shared__ float partial[kWarps / 2][kRows * kLanes * 4][32];
  const Segment segment = find_segment(params, blockIdx.x / lane_tiles, 16 * kRows);
  const std::int64_t rank = segment.rows > 0 ? params.rank[segment.adapter] : 0;
  const std::int64_t lanes = params.slices * rank;
  const std::int64_t first_lane = blockIdx.x % lane_tiles * (8 * kLanes);
  if (first_lane >= lanes) {
    return;  // the whole block
  }
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int g = lane / 4;
  const int t = lane % 4;

  const T* x[2 * kRows];
#pragma unroll
  for (int i = 0; i < 2 * kRows; ++i) {
    x[i] = static_cast<const T*>(params.x) + token_of(params, segment, g + 8 * i) * params.x_stride;
  }
  const T* a[kLanes];
#pragma unroll
  for (int j = 0; j < kLanes; ++j) {
    const std::int64_t wanted = first_lane + 8 * j + g;
    const auto packed = static_cast<int>(wanted < lanes ? wanted : lanes - 1);
    const int slice = packed / static_cast<int>(rank);
    const std::int64_t row = segment.adapter * params.max_rank + packed % static_cast<int>(rank);
    a[j] = static_cast<const T*>(params.a[slice]) + row * params.in_features;
  }

  float sum[kRows][kLanes][4] = {};
  uint4 x_next[2 * kRows], a_next[kLanes];
  const auto load = [&](std::int64_t k) {
#pragma unroll
    for (int i = 0; i < 2 * kRows; ++i) {
      x_next[i] = load_eight_of_whole<kVectors>(x[i], k, params.in_features);
    }
#pragma unroll
    for (int j = 0; j < kLanes; ++j) {
      a_next[j] = load_eight_of_whole<kVectors>(a[j], k, params.in_features);
    }
  };
  load(warp * 32 + t * 8);
#pragma unroll 1
  for (std::int64_t block = warp * 32; block < params.in_features; block += kStep) {
    uint4 x_now[2 * kRows], a_now[kLanes];
#pragma unroll
    for (int i = 0; i < 2 * kRows; ++i) {
      x_now[i] = x_next[i];
    }
#pragma unroll
    for (int j = 0; j < kLanes; ++j) {
      a_now[j] = a_next[j];
    }
    if (block + kStep < params.in_features) {
      load(block + kStep + t * 8);
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kLanes; ++j) {
        const uint4& top = x_now[2 * i];
        const uint4& bottom = x_now[2 * i + 1];
        multiply_16<T>(sum[i][j], top.x, bottom.x, top.y, bottom.y, a_now[j].x, a_now[j].y);
        multiply_16<T>(sum[i][j], top.z, bottom.z, top.w, bottom.w, a_now[j].z, a_now[j].w);
      }
    }
  }

  float* mine = &sum[0][0][0];
#pragma unroll
  for (int half = kWarps / 2; half > 0; half /= 2) {
    if (warp >= half && warp < 2 * half) {
#pragma unroll
      for (int i = 0; i < kRows * kLanes * 4; ++i) {
        partial[warp - half][i][lane] = mine[i];
      }
    }
    __syncthreads();  // the upper half's sums are there
    if (warp < half) {
#pragma unroll
      for (int i = 0; i < kRows * kLanes * 4; ++i) {
        mine[i] += partial[warp][i][lane];
      }
    }
    __syncthreads();  // they have been read
  }
  if (warp != 0) {
    return;
  }

  const float scale = params.scale == nullptr ? 1.0F : params.scale[segment.adapter];
  H* h = static_cast<H*>(params.h);
#pragma unroll
  for (int j = 0; j < kLanes; ++j) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const auto packed = static_cast<int>(first_lane) + 8 * j + 2 * t + c;
      if (packed >= lanes) {
        continue;
      }
      const std::int64_t slice = packed / static_cast<int>(rank);
      const std::int64_t to = packed % static_cast<int>(rank);
#pragma unroll
      for (int i = 0; i < 2 * kRows; ++i) {
        if (g + 8 * i < segment.rows) {
          const std::int64_t token = token_of(params, segment, g + 8 * i);
          h[(slice * params.tokens + token) * params.max_rank + to] =
              from_float<H>(scale * sum[i / 2][j][i % 2 * 2 + c]);
        }
      }
    }
  }
}

// Sixteen neighbouring elements of y of one row, in two vectors where they are whole and aligned.
template <typename T>
struct OutputRun {
  static constexpr int kColumns = 16;

  // `value` is the delta; columns at or beyond `end` are not touched.
  __device__ static void add_to(T* y, int end, bool add_inputs, const float (&value)[kColumns]) {
    if (end >= kColumns && reinterpret_cast<std::uintptr_t>(y) % 16 == 0) {
      uint4* vectors = reinterpret_cast<uint4*>(y);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float before[8] = {};
        if (add_inputs) {
          unpack<T>(vectors[half], before);
        }
        alignas(16) T after[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const float delta = value[8 * half + i];
          after[i] = from_float<T>(add_inputs ? delta + before[i] : delta);
        }
        vectors[half] = *reinterpret_cast<const uint4*>(after);
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      if (i < end) {
        y[i] = from_float<T>(add_inputs ? value[i] + to_float(y[i]) : value[i]);
      }
    }
  }
};

// A block owns 64 rows of one adapter times 128 columns of one slice, a warp 32 times 64, in
// registers; h and B come straight from memory, B once for each tile of rows. Columns are dealt to
// the fragments so that a thread ends up with 16 neighbours of a row: y is read and written in
// vectors. The sum's order depends on the rank alone. Bound: memory (y), until the rank is large.
template <typename T, typename H, bool kVectors>
__global__ void __launch_bounds__(kSgmvExpandThreads, 3)
    sgmv_expand(const __grid_constant__ ExpandParams params, std::int64_t column_tiles) {
  constexpr int kRows = 2;   // times 16
  constexpr int kTiles = 8;  // times 8 columns
  constexpr int kWarpRows = 16 * kRows;
  constexpr int kWarpColumns = 8 * kTiles;
  static_assert(2 * kWarpRows == kSgmvExpandRows && 2 * kWarpColumns == kSgmvExpandColumns);
  const Segment segment = find_segment(params, blockIdx.x / column_tiles, kSgmvExpandRows);
  const std::int64_t rank = segment.rows > 0 ? params.rank[segment.adapter] : 0;
  if (rank == 0) {
    return;
  }
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int g = lane / 4;
  const int t = lane % 4;
  const ColumnTile tile = column_tile(params, blockIdx.x % column_tiles, kSgmvExpandColumns);
  const std::int64_t width = params.width[tile.slice];
  const int first_row = warp % 2 * kWarpRows;
  const std::int64_t first_column = tile.first + warp / 2 * kWarpColumns;
  if (first_row >= segment.rows || first_column >= width) {
    return;  // the whole warp; no barrier follows
  }

  const H* h[2 * kRows];
#pragma unroll
  for (int i = 0; i < 2 * kRows; ++i) {
    const std::int64_t token = token_of(params, segment, first_row + g + 8 * i);
    h[i] = static_cast<const H*>(params.h) + (tile.slice * params.tokens + token) * params.max_rank;
  }
  const T* b[kTiles];
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    // Fragment column 2 * t + c of tile j is column 16 * t + 2 * j + c of the warp.
    const std::int64_t wanted = first_column + g / 2 * 16 + 2 * j + g % 2;
    const std::int64_t column = wanted < width ? wanted : width - 1;
    b[j] = static_cast<const T*>(params.b[tile.slice]) +
           (segment.adapter * width + column) * params.max_rank;
  }

  float sum[kRows][kTiles][4] = {};
#pragma unroll 1
  for (std::int64_t at = t * 4; at - t * 4 < rank; at += 16) {
    HiddenFragment<T, H> rows[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      rows[i].load(load_four<kVectors>(h[2 * i], at, rank),
                   load_four<kVectors>(h[2 * i + 1], at, rank));
    }
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const uint2 lanes = load_four<kVectors>(b[j], at, rank);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        rows[i].multiply(sum[i][j], lanes);
      }
    }
  }

  const float scale = params.scale == nullptr ? 1.0F : params.scale[segment.adapter];
  const std::int64_t column = first_column + 16 * t;
  const std::int64_t left = width - column;
  const int end = left < 16 ? static_cast<int>(left) : 16;  // may be negative
  const T* bias =
      params.bias[tile.slice] == nullptr
          ? nullptr
          : static_cast<const T*>(params.bias[tile.slice]) + segment.adapter * width + column;
#pragma unroll
  for (int i = 0; i < 2 * kRows; ++i) {
    if (first_row + g + 8 * i >= segment.rows) {
      continue;
    }
    float value[16];
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        value[2 * j + c] = scale * sum[i / 2][j][i % 2 * 2 + c];
        if (bias != nullptr && 2 * j + c < end) {
          value[2 * j + c] += to_float(bias[2 * j + c]);
        }
      }
    }
    const std::int64_t token = token_of(params, segment, first_row + g + 8 * i);
    T* y = static_cast<T*>(params.y) + token * params.y_stride + tile.slice_start + column;
    OutputRun<T>::add_to(y, end, params.add_inputs, value);
  }
}

}  // namespace lora_bench::kernels
