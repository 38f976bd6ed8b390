#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/continued/continued.h"

// Behind the columns of x and W, lanes in the order [part, block, slice, lane], a slot each block,
// with part 0 of h what bf16 has of it and part 1 what bf16 has of the rest:
//
//   x  row t   [ x ......... | h0 h0 .. 0 | h1 h1 .. 0 ]    lanes of other adapters are 0
//   W  row n   [ W ......... | B  0  .. B | B  0  .. B ]    lanes of other slices are 0
namespace lora_bench::kernels {

constexpr int kLanesAtOnce = 8;

struct alignas(16) Lanes {
  __nv_bfloat16 lane[kLanesAtOnce];
};

__device__ inline int lanes_of_adapter(const ContinuedParams& params) {
  return params.expand.slices * static_cast<int>(params.expand.max_rank);
}

// Where a slot's lanes begin in a part; -1: it has none.
__device__ inline int first_lane_of(const ContinuedParams& params, int slot) {
  for (int block = 0; block < params.blocks; ++block) {
    if (params.slot[block] == slot) {
      return block * lanes_of_adapter(params);
    }
  }
  return -1;
}

__device__ inline Lanes lanes_of_b(const ContinuedParams& params, std::int64_t column,
                                   int lane_of_row) {
  Lanes lanes = {};
  const ExpandParams& expand = params.expand;
  const int max_rank = static_cast<int>(expand.max_rank);
  const int slot = params.slot[lane_of_row / lanes_of_adapter(params)];
  const int of_slice = lane_of_row / max_rank % expand.slices;
  const int lane = lane_of_row % max_rank;
  std::int64_t in_slice = column - expand.first_column;
  for (int slice = 0; slice < of_slice; ++slice) {
    in_slice -= expand.width[slice];
  }
  if (in_slice < 0 || in_slice >= expand.width[of_slice]) {
    return lanes;
  }
  const int rank = expand.rank[slot];
  const auto* b = static_cast<const __nv_bfloat16*>(expand.b[of_slice]) +
                  (slot * expand.width[of_slice] + in_slice) * expand.max_rank + lane;
  if (lane + kLanesAtOnce <= rank) {
    return *reinterpret_cast<const Lanes*>(b);
  }
  for (int i = 0; lane + i < rank; ++i) {
    lanes.lane[i] = b[i];
  }
  return lanes;
}

// B behind all rows of W, by so many blocks.
__device__ inline void put_b(const ContinuedParams& params, int worker, int workers) {
  const int lanes = params.blocks * lanes_of_adapter(params);
  const int pieces = lanes / kLanesAtOnce;
  auto* const w = static_cast<__nv_bfloat16*>(params.w) + params.depth;
  for (std::int64_t i = worker * static_cast<std::int64_t>(blockDim.x) + threadIdx.x;
       i < params.all_columns * pieces; i += static_cast<std::int64_t>(workers) * blockDim.x) {
    const std::int64_t column = i / pieces;
    const int lane = static_cast<int>(i % pieces) * kLanesAtOnce;
    const Lanes b = lanes_of_b(params, column, lane);
    for (int part = 0; part < kContinuedParts; ++part) {
      *reinterpret_cast<Lanes*>(w + column * params.w_stride + part * lanes + lane) = b;
    }
  }
}

__device__ inline __nv_bfloat16* behind_x(const ContinuedParams& params, std::int64_t token) {
  return static_cast<__nv_bfloat16*>(params.x) + token * params.x_stride + params.depth;
}

// Zeros behind rows without an adapter, which the plan has last.
__device__ inline void clear_rows(const ContinuedParams& params, int worker, int workers) {
  const int pieces = kContinuedParts * params.blocks * lanes_of_adapter(params) / kLanesAtOnce;
  const ShrinkParams& shrink = params.shrink;
  const std::int64_t first = shrink.group_starts[shrink.active];
  for (std::int64_t i = worker * static_cast<std::int64_t>(blockDim.x) + threadIdx.x;
       i < (shrink.tokens - first) * pieces; i += static_cast<std::int64_t>(workers) * blockDim.x) {
    const std::int64_t token = shrink.token_order[first + i / pieces];
    *reinterpret_cast<Lanes*>(behind_x(params, token) + i % pieces * kLanesAtOnce) = Lanes{};
  }
}

// Zeros behind a row where other adapters have their lanes, by a warp.
__device__ inline void clear_others(const ContinuedParams& params, std::int64_t token, int id,
                                    int lane_of_warp) {
  const int each = lanes_of_adapter(params);
  const int lanes = params.blocks * each;
  const int own = first_lane_of(params, id);
  for (int lane = lane_of_warp * kLanesAtOnce; lane < kContinuedParts * lanes;
       lane += 32 * kLanesAtOnce) {
    const int of_part = lane % lanes;
    if (own < 0 || of_part < own || of_part >= own + each) {
      *reinterpret_cast<Lanes*>(behind_x(params, token) + lane) = Lanes{};
    }
  }
}

struct alignas(8) FourLanes {
  __nv_bfloat16 lane[4];
};

// Four lanes of h of a row, not yet scaled: behind x, or where an expand will look for them.
__device__ inline void put_h(const ContinuedParams& params, std::int64_t token, int id,
                             int of_adapter, const float4& sums) {
  const ShrinkParams& shrink = params.shrink;
  const int max_rank = static_cast<int>(shrink.max_rank);
  const int slice = of_adapter / max_rank;
  const int lane = of_adapter % max_rank;
  if (slice >= shrink.slices) {
    return;
  }
  const int rank = shrink.rank[id];
  const float shrink_scale = shrink.scale == nullptr ? 1.0F : shrink.scale[id];
  const float expand_scale = params.expand.scale == nullptr ? 1.0F : params.expand.scale[id];
  const float sum[4] = {sums.x, sums.y, sums.z, sums.w};
  const int own = first_lane_of(params, id);
  if (own < 0) {
    float* const to =
        static_cast<float*>(shrink.h) + (slice * shrink.tokens + token) * shrink.max_rank + lane;
    for (int i = 0; i < 4 && lane + i < rank; ++i) {
      to[i] = sum[i] * shrink_scale;
    }
    return;
  }
  FourLanes high;
  FourLanes rest;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float h = lane + i < rank ? sum[i] * shrink_scale * expand_scale : 0.0F;
    high.lane[i] = __float2bfloat16(h);
    // Of what is infinite nothing is left.
    rest.lane[i] = __float2bfloat16(isfinite(h) ? h - __bfloat162float(high.lane[i]) : 0.0F);
  }
  __nv_bfloat16* const to = behind_x(params, token) + own + of_adapter;
  *reinterpret_cast<FourLanes*>(to) = high;
  *reinterpret_cast<FourLanes*>(to + params.blocks * lanes_of_adapter(params)) = rest;
}

}  // namespace lora_bench::kernels
