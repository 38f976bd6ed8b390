#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/continued/continued.h"
#include "kernels/link.cuh"

// Behind the columns of x and W, lanes in the order [part, block, slice, lane], a slot each block,
// with part 0 of h what bf16 has of it and part 1 what bf16 has of the rest:
//
//   x  row t   [ x ......... | h0 h0 .. 0 | h1 h1 .. 0 ]    lanes of other adapters are 0
//   W  row n   [ W ......... | B  0  .. B | B  0  .. B ]    lanes of other slices are 0
//
// A thread owns 16 bytes, 8 lanes, of one row at a time: first rows of W, then rows of x. Nothing
// is shared. Expected bound: memory, of 2 * lanes * (tokens + columns) bytes written, h and B read.
namespace lora_bench::kernels {

constexpr int kLanesAtOnce = 8;

struct alignas(16) Lanes {
  __nv_bfloat16 lane[kLanesAtOnce];
};

// Which slot, slice and first lane of it a piece of a row has.
struct LanesAt {
  int slot, slice, lane;
};

__device__ inline LanesAt lanes_at(const ContinuedParams& params, int lane_of_row) {
  const int rank = static_cast<int>(params.expand.max_rank);
  const int block = lane_of_row / rank;
  return {params.slot[block / params.expand.slices], block % params.expand.slices,
          lane_of_row % rank};
}

__device__ inline Lanes lanes_of_b(const ContinuedParams& params, std::int64_t column, LanesAt at) {
  Lanes lanes = {};
  const ExpandParams& expand = params.expand;
  std::int64_t in_slice = column - expand.first_column;
  for (int slice = 0; slice < at.slice; ++slice) {
    in_slice -= expand.width[slice];
  }
  if (in_slice < 0 || in_slice >= expand.width[at.slice]) {
    return lanes;
  }
  const int rank = expand.rank[at.slot];
  const auto* b = static_cast<const __nv_bfloat16*>(expand.b[at.slice]) +
                  (at.slot * expand.width[at.slice] + in_slice) * expand.max_rank + at.lane;
  if (at.lane + kLanesAtOnce <= rank) {
    return *reinterpret_cast<const Lanes*>(b);
  }
  for (int i = 0; at.lane + i < rank; ++i) {
    lanes.lane[i] = b[i];
  }
  return lanes;
}

__device__ inline void lanes_of_h(const ContinuedParams& params, std::int64_t token, LanesAt at,
                                  Lanes (&parts)[2]) {
  const ExpandParams& expand = params.expand;
  // Of a slice without columns no h was made.
  if (expand.adapter_of_token[token] != at.slot || expand.width[at.slice] == 0) {
    return;
  }
  const int rank = expand.rank[at.slot];
  const float scale = expand.scale == nullptr ? 1.0F : expand.scale[at.slot];
  const std::int64_t first = (at.slice * expand.tokens + token) * expand.max_rank + at.lane;
  for (int i = 0; i < kLanesAtOnce && at.lane + i < rank; ++i) {
    const float h = params.wide_hidden
                        ? static_cast<const float*>(expand.h)[first + i]
                        : __bfloat162float(static_cast<const __nv_bfloat16*>(expand.h)[first + i]);
    const float scaled = h * scale;
    parts[0].lane[i] = __float2bfloat16(scaled);
    // Of what is infinite nothing is left.
    parts[1].lane[i] =
        __float2bfloat16(isfinite(scaled) ? scaled - __bfloat162float(parts[0].lane[i]) : 0.0F);
  }
}

__global__ void __launch_bounds__(256) continued(ContinuedParams params) {
  await_previous_kernel();
  const int lanes = params.blocks * params.expand.slices * static_cast<int>(params.expand.max_rank);
  const int pieces = lanes / kLanesAtOnce;
  const int parts = params.wide_hidden ? 2 : 1;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  auto* const w = static_cast<__nv_bfloat16*>(params.w) + params.depth;
  for (std::int64_t i = begin; i < params.all_columns * pieces; i += step) {
    const std::int64_t column = i / pieces;
    const int lane = static_cast<int>(i % pieces) * kLanesAtOnce;
    const Lanes b = lanes_of_b(params, column, lanes_at(params, lane));
    for (int part = 0; part < parts; ++part) {
      *reinterpret_cast<Lanes*>(w + column * params.w_stride + part * lanes + lane) = b;
    }
  }
  auto* const x = static_cast<__nv_bfloat16*>(params.x) + params.depth;
  for (std::int64_t i = begin; i < params.expand.tokens * pieces; i += step) {
    const std::int64_t token = i / pieces;
    const int lane = static_cast<int>(i % pieces) * kLanesAtOnce;
    Lanes h[2] = {};
    lanes_of_h(params, token, lanes_at(params, lane), h);
    for (int part = 0; part < parts; ++part) {
      *reinterpret_cast<Lanes*>(x + token * params.x_stride + part * lanes + lane) = h[part];
    }
  }
}

}  // namespace lora_bench::kernels
