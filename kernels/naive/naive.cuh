#pragma once

#include <type_traits>

#include "kernels/dtype.cuh"
#include "kernels/naive/naive.h"
#include "kernels/segment/segment.cuh"

namespace lora_bench::kernels {

// The scales of a row of weights: one for each so many elements of it. Of other weights than those
// of eight bits there are none, and nothing is multiplied.
template <typename W>
struct RowScales {
  const float* of_row = nullptr;
  std::int64_t block_columns = 1;

  __device__ RowScales(const NaiveScales& scales, int slice, std::int64_t adapter,
                       std::int64_t row) {
    if constexpr (kIsEightBits<W>) {
      of_row = scales.of_slice[slice] + adapter * scales.slot_stride[slice] +
               row / scales.block_rows[slice] * scales.blocks_across;
      block_columns = scales.block_columns;
    }
  }
  __device__ float scaled(W number, std::int64_t column) const {
    if constexpr (kIsEightBits<W>) {
      return to_float(number) * of_row[column / block_columns];
    } else {
      return to_float(number);
    }
  }
};

// The scales of a row of x or h likewise; of others nothing is passed to the kernel.
struct NoScales {};
template <typename Rows>
using RowScalesOf = std::conditional_t<kIsEightBits<Rows>, NaiveRowScales, NoScales>;

template <typename Rows>
__device__ float scaled(Rows number, const RowScalesOf<Rows>& scales, std::int64_t slice,
                        std::int64_t token, std::int64_t column) {
  if constexpr (kIsEightBits<Rows>) {
    return to_float(number) *
           scales.of_rows[slice * scales.slice_stride + token * scales.token_stride +
                          column / scales.block_columns];
  } else {
    return to_float(number);
  }
}

// A warp owns one (token, slice, lane) and writes one element of h. Its 32 threads stride over K
// side by side, so that reads of x and A coalesce, then add up in a tree of fixed order: the same
// bits whatever else is in the batch. Neighbouring warps share a row of x (in L1 or L2); A streams
// from memory once per token that uses it. Bound: memory, with every A read as often as it has
// rows.
template <typename X, typename W, typename H>
__global__ void naive_shrink(const __grid_constant__ ShrinkParams params,
                             const __grid_constant__ NaiveStrides strides,
                             const __grid_constant__ NaiveScales scales,
                             const __grid_constant__ RowScalesOf<X> scales_of_x) {
  const std::int64_t lanes = params.slices * params.max_rank;
  const std::int64_t items = params.tokens * lanes;
  const std::int64_t warps = std::int64_t{gridDim.x} * (blockDim.x / kWarp);
  const int thread = static_cast<int>(threadIdx.x % kWarp);
  std::int64_t item = std::int64_t{blockIdx.x} * (blockDim.x / kWarp) + threadIdx.x / kWarp;
  for (; item < items; item += warps) {
    const std::int64_t token = item / lanes;
    const std::int64_t slice = item % lanes / params.max_rank;
    const std::int64_t lane = item % params.max_rank;
    const std::int64_t adapter = params.adapter_of_token[token];
    if (adapter < 0 || lane >= params.rank[adapter]) {
      continue;  // the whole warp: the item is the same for all its threads
    }
    const std::int64_t lanes_before = strides.packed ? slice * params.rank[adapter] : 0;
    const X* x = static_cast<const X*>(params.x) + slice * params.x_slice_stride +
                 row_of_x(params, static_cast<std::int32_t>(token)) * params.x_stride;
    const W* a = static_cast<const W*>(params.a[slice]) + adapter * strides.a_slot +
                 (lanes_before + lane) * strides.a_lane;
    const RowScales<W> of_lane(scales, static_cast<int>(slice), adapter, lane);
    float sum = 0;
    for (std::int64_t k = thread; k < params.in_features; k += kWarp) {
      sum = fmaf(scaled<X>(x[k * strides.x_column], scales_of_x, slice, token, k),
                 of_lane.scaled(a[k], k), sum);
    }
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
      sum += __shfl_down_sync(0xFFFFFFFFU, sum, static_cast<unsigned>(distance));
    }
    if (thread == 0) {
      const float scale = params.scale == nullptr ? 1.0F : params.scale[adapter];
      H* h = static_cast<H*>(params.h) + token * strides.h_row +
             (strides.packed ? lanes_before : slice * strides.h_slice) + lane;
      *h = from_float<H>(params.adds ? scale * sum + to_float(*h) : scale * sum);
    }
  }
}

// A thread owns one (token, column) and writes one element of y. Neighbours own neighbouring
// columns: y coalesces, h is the same for all, each reads its own row of B. Bound: memory, with
// every B read as often as it has rows.
template <typename Y, typename W, typename H>
__global__ void naive_expand(const __grid_constant__ ExpandParams params,
                             const __grid_constant__ NaiveStrides strides,
                             const __grid_constant__ NaiveScales scales,
                             const __grid_constant__ RowScalesOf<H> scales_of_h) {
  using Bias = std::conditional_t<kIsEightBits<W>, Y, W>;
  const std::int64_t items = params.tokens * params.columns;
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  std::int64_t item = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (; item < items; item += threads) {
    const std::int64_t token = item / params.columns;
    const std::int64_t adapter = params.adapter_of_token[token];
    if (adapter < 0 || (params.rank[adapter] == 0 && !params.rank0_bias)) {
      continue;
    }
    const std::int64_t column_in_row = item % params.columns;
    std::int64_t column = column_in_row;
    int slice = 0;
    while (column >= params.width[slice]) {
      column -= params.width[slice++];
    }
    const std::int64_t output =
        adapter * (strides.stacked ? params.columns : params.width[slice]) + column;
    const std::int64_t rank = params.rank[adapter];
    const H* h = static_cast<const H*>(params.h) + token * strides.h_row +
                 slice * (strides.packed ? rank : strides.h_slice);
    const W* b = static_cast<const W*>(params.b[slice]) + output * strides.b_output;
    const RowScales<W> of_output(scales, slice, adapter, column);
    float sum = 0;
    for (std::int64_t lane = 0; lane < rank; ++lane) {
      sum = fmaf(scaled<H>(h[lane], scales_of_h, slice, token, lane),
                 of_output.scaled(b[lane], lane), sum);
    }
    float value = params.scale == nullptr ? sum : params.scale[adapter] * sum;
    value = params.factor == nullptr ? value : params.factor[token] * value;
    if (params.bias[slice] != nullptr) {
      value += to_float(static_cast<const Bias*>(params.bias[slice])[output]);
    }
    Y* y =
        static_cast<Y*>(params.y) + token * params.y_stride + params.first_column + column_in_row;
    if (params.add_inputs) {
      value += to_float(*y);
    }
    *y = from_float<Y>(value);
  }
}

// Calls `launch` with the type of the weights, and of h where the rows are of type Rows.
template <typename Rows, typename Launch>
cudaError_t visit_weights(const NaiveNumbers& numbers, Launch launch) {
  const auto with_h = [&]<typename Weights>() {
    return numbers.h == Number::kFp32 ? launch.template operator()<Weights, float>()
                                      : launch.template operator()<Weights, Rows>();
  };
  switch (numbers.weights) {
    case WeightNumber::kFp32:
      return with_h.template operator()<float>();
    case WeightNumber::kBf16:
      return with_h.template operator()<__nv_bfloat16>();
    case WeightNumber::kFp16:
      return with_h.template operator()<__half>();
    case WeightNumber::kE4m3:
      return with_h.template operator()<E4m3>();
    case WeightNumber::kE5m2:
      return with_h.template operator()<E5m2>();
  }
  return cudaErrorInvalidValue;
}

template <typename X>
cudaError_t launch_shrink_of(const NaiveNumbers& numbers, const ShrinkParams& params,
                             const NaiveStrides& strides, const NaiveScales& scales,
                             const NaiveTuning& tuning, cudaStream_t stream) {
  if (tuning.blocks == 0) {
    return cudaSuccess;
  }
  return visit_weights<X>(numbers, [&]<typename W, typename H>() {
    const auto blocks = static_cast<unsigned>(tuning.blocks);
    const auto threads = static_cast<unsigned>(tuning.threads_per_block);
    naive_shrink<X, W, H><<<blocks, threads, 0, stream>>>(params, strides, scales, NoScales{});
    return cudaGetLastError();
  });
}

template <typename Y>
cudaError_t launch_expand_of(const NaiveNumbers& numbers, const ExpandParams& params,
                             const NaiveStrides& strides, const NaiveScales& scales,
                             const NaiveTuning& tuning, cudaStream_t stream) {
  if (tuning.blocks == 0) {
    return cudaSuccess;
  }
  return visit_weights<Y>(numbers, [&]<typename W, typename H>() {
    const auto blocks = static_cast<unsigned>(tuning.blocks);
    const auto threads = static_cast<unsigned>(tuning.threads_per_block);
    naive_expand<Y, W, H><<<blocks, threads, 0, stream>>>(params, strides, scales, NoScales{});
    return cudaGetLastError();
  });
}

}  // namespace lora_bench::kernels
