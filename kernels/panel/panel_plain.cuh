#pragma once

#include "kernels/chains.cuh"
#include "kernels/chains.h"
#include "kernels/link.cuh"
#include "kernels/panel/panel_plan.h"
#include "kernels/panel/panel_tuning.h"
#include "kernels/segment/fragments.cuh"
#include "kernels/segment/segment.cuh"
#include "kernels/segment/vectors.cuh"

// The same sums for shapes that no tile takes: rows that do not start on 16 bytes, ranks above 256.
// A warp works straight from memory, and nothing is done to hide that.
namespace lora_bench::kernels {

constexpr int kPanelPlainThreads = 32;

// Block: 16 rows times 8 lanes, all chains; one part.
template <typename T>
__global__ void __launch_bounds__(kPanelPlainThreads)
    panel_plain_shrink(const __grid_constant__ ShrinkParams params,
                       const __grid_constant__ PanelShrinkPlan plan) {
  await_previous_kernel();
  let_next_kernel_start();
  const Segment segment = find_segment(params, blockIdx.x / plan.lane_tiles, 16);
  const int rank = segment.rows > 0 ? params.rank[segment.adapter] : 0;
  const int lanes = rank * params.slices;
  const int first_lane = static_cast<int>(blockIdx.x % plan.lane_tiles) * 8;
  if (first_lane >= lanes) {
    return;
  }
  const int g = static_cast<int>(threadIdx.x) / 4;
  const int t = static_cast<int>(threadIdx.x) % 4;
  const T* x[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const auto token = static_cast<std::int32_t>(token_of(params, segment, g + 8 * i));
    x[i] = static_cast<const T*>(params.x) + row_of_x(params, token) * params.x_stride;
  }
  const int lane = min(first_lane + g, lanes - 1);
  const T* a = static_cast<const T*>(params.a[lane / rank]) +
               (segment.adapter * params.max_rank + lane % rank) * params.in_features;
  const std::int64_t length = plan.chain;
  float total[4];
  float kept[kChainLevels][4];
#pragma unroll
  for (int chain = 0; chain < kChains; ++chain) {
    const std::int64_t start = chain * length;
    const std::int64_t end =
        start + length < params.in_features ? start + length : params.in_features;
    float sum[4] = {};
    for (std::int64_t k = start + t * 4; k - t * 4 < end; k += 16) {
      const uint2 x0 = load_four<false>(x[0], k, end);
      const uint2 x1 = load_four<false>(x[1], k, end);
      const uint2 of_a = load_four<false>(a, k, end);
      multiply_16<T>(sum, x0.x, x1.x, x0.y, x1.y, of_a.x, of_a.y);
    }
    // With the runs of chains before it that are as long as what it ends.
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      int level = 0;
#pragma unroll
      for (; (chain >> level) % 2 != 0; ++level) {
        sum[c] = both(kept[level][c], sum[c]);
      }
      if (level < kChainLevels) {
        kept[level][c] = sum[c];
      } else {
        total[c] = sum[c];
      }
    }
  }
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const int row = g + c / 2 * 8;
    const int own = first_lane + 2 * t + c % 2;
    if (row < segment.rows && own < lanes) {
      plan.sums
          .sums[(own / rank * params.tokens + token_of(params, segment, row)) * params.max_rank +
                own % rank] = total[c];
    }
  }
}

template <int kParts>
__device__ inline float sum_of_parts(const PanelSums& sums, std::int64_t element) {
  const volatile float* at = sums.sums + element;  // written by a kernel that may still run
  float part[kParts];
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    part[i] = at[i * sums.elements];
  }
  return add_in_pairs(part);
}

// An element of h: the parts added, scaled, rounded to H.
template <typename H>
__device__ inline H hidden_of(const PanelSums& sums, std::int64_t element, float scale) {
  const float sum = sums.parts == 1   ? sum_of_parts<1>(sums, element)
                    : sums.parts == 2 ? sum_of_parts<2>(sums, element)
                    : sums.parts == 4 ? sum_of_parts<4>(sums, element)
                                      : sum_of_parts<kChains>(sums, element);
  return from_float<H>(__fmul_rn(sum, scale));
}

// Block: 16 rows times 64 columns of a slice.
template <typename T, typename H>
__global__ void __launch_bounds__(kPanelPlainThreads)
    panel_plain_expand(const __grid_constant__ ExpandParams params,
                       const __grid_constant__ PanelExpandPlan plan) {
  using Hidden = std::conditional_t<sizeof(H) == sizeof(float), float4, uint2>;  // of four lanes
  await_previous_kernel();
  const Segment segment = find_segment(params, blockIdx.x / plan.chunks, 16);
  const int rank = segment.rows > 0 ? params.rank[segment.adapter] : 0;
  if (rank == 0) {
    return;
  }
  const int g = static_cast<int>(threadIdx.x) / 4;
  const int t = static_cast<int>(threadIdx.x) % 4;
  const ColumnTile tile = column_tile(params, blockIdx.x % plan.chunks, 64);
  const std::int64_t width = params.width[tile.slice];
  const float shrink_scale = plan.sums.scale == nullptr ? 1.0F : plan.sums.scale[segment.adapter];
  const float scale = params.scale == nullptr ? 1.0F : params.scale[segment.adapter];
  std::int64_t tokens[2];
  float scales[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    tokens[i] = token_of(params, segment, g + 8 * i);
    scales[i] = params.factor == nullptr ? scale : __fmul_rn(scale, params.factor[tokens[i]]);
  }
  float sum[8][4] = {};
  for (int at = 4 * t; at - 4 * t < rank; at += 16) {
    Hidden rows[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      H lanes[4];
#pragma unroll
      for (int l = 0; l < 4; ++l) {
        const std::int64_t element =
            (tile.slice * params.tokens + tokens[i]) * params.max_rank + at + l;
        lanes[l] = from_float<H>(0.0F);
        if (at + l < rank) {
          lanes[l] = plan.sums.sums == nullptr ? static_cast<const H*>(params.h)[element]
                                               : hidden_of<H>(plan.sums, element, shrink_scale);
        }
      }
      if constexpr (sizeof(H) == sizeof(float)) {
        rows[i] = {lanes[0], lanes[1], lanes[2], lanes[3]};
      } else {
        rows[i] = {bits_of(lanes[0]) | bits_of(lanes[1]) << 16,
                   bits_of(lanes[2]) | bits_of(lanes[3]) << 16};
      }
    }
    HiddenFragment<T, H> hidden;
    hidden.load(rows[0], rows[1]);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const std::int64_t column =
          tile.first + 8 * j + g < width ? tile.first + 8 * j + g : width - 1;
      const T* b = static_cast<const T*>(params.b[tile.slice]) +
                   (segment.adapter * width + column) * params.max_rank;
      hidden.multiply(sum[j], {load_pair(b, at, rank), load_pair(b, at + 2, rank)});
    }
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const std::int64_t column = tile.first + 8 * j + 2 * t + c % 2;
      if (g + c / 2 * 8 < segment.rows && column < width) {
        float value = __fmul_rn(scales[c / 2], sum[j][c]);
        if (params.bias[tile.slice] != nullptr) {
          value = __fadd_rn(value, to_float(static_cast<const T*>(
                                       params.bias[tile.slice])[segment.adapter * width + column]));
        }
        T* y =
            static_cast<T*>(params.y) + tokens[c / 2] * params.y_stride + tile.slice_start + column;
        *y = from_float<T>(params.add_inputs ? __fadd_rn(value, to_float(*y)) : value);
      }
    }
  }
}

// Block: some elements of h, whichever tiles made its parts.
template <typename H>
__global__ void __launch_bounds__(256)
    panel_hidden(const __grid_constant__ ShrinkParams params, const PanelSums sums) {
  await_previous_kernel();
  const std::int64_t element = std::int64_t{blockIdx.x} * 256 + threadIdx.x;
  const std::int64_t row = element / params.max_rank;
  if (row >= params.slices * params.tokens) {
    return;
  }
  const std::int32_t adapter = params.adapter_of_token[row % params.tokens];
  if (adapter >= 0 && element % params.max_rank < params.rank[adapter]) {
    static_cast<H*>(params.h)[element] =
        hidden_of<H>(sums, element, sums.scale == nullptr ? 1.0F : sums.scale[adapter]);
  }
}

}  // namespace lora_bench::kernels
