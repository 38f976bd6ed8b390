#pragma once

#include "kernels/params.h"
#include "kernels/tile/product.cuh"
#include "kernels/tile/shrink_tile.cuh"

namespace lora_bench::kernels {

constexpr int kPerVector = 8;  // 16-bit numbers in 16 bytes

// y rows of `rows`, columns [column, column + count) of a slice. Where y can be read in vectors it
// is read before the product, so that its way from memory is hidden behind it.
template <typename Shape, bool kVector, typename T, typename H>
__device__ inline void expand_tile(const ExpandParams& params, const GroupRows& rows, int slice,
                                   std::int64_t slice_start, std::int64_t column, int count,
                                   bool vector_y) {
  extern __shared__ __align__(128) char shared[];
  __shared__ const H* left[Shape::kRows];
  __shared__ const T* right[Shape::kColumns];
  constexpr int kVectorsOfRow = Shape::kColumns / kPerVector;
  constexpr int kOwn = Shape::kRows * kVectorsOfRow / Shape::kThreads;
  const int thread = static_cast<int>(threadIdx.x);
  for (int row = thread; row < rows.count; row += Shape::kThreads) {
    left[row] = static_cast<const H*>(params.h) +
                (slice * params.tokens + rows.tokens[row]) * params.max_rank;
  }
  const std::int64_t first_output = rows.adapter * params.width[slice] + column;
  for (int i = thread; i < count; i += Shape::kThreads) {
    right[i] = static_cast<const T*>(params.b[slice]) + (first_output + i) * params.max_rank;
  }
  T* y = static_cast<T*>(params.y) + params.first_column + slice_start + column;
  uint4 before[kOwn] = {};
  if (vector_y && params.add_inputs) {
#pragma unroll
    for (int own = 0; own < kOwn; ++own) {
      const int item = thread + own * Shape::kThreads;
      const int row = item / kVectorsOfRow;
      const int at = item % kVectorsOfRow * kPerVector;
      if (row < rows.count && at < count) {
        before[own] = *reinterpret_cast<const uint4*>(y + rows.tokens[row] * params.y_stride + at);
      }
    }
  }
  __syncthreads();  // the addresses are complete
  float sums[Shape::kColumnTiles][4] = {};
  multiply<Shape, kVector>(shared, left, rows.count, right, count, 0, rows.rank, sums);
  const float* all = collect<Shape>(shared, sums);
  const float scale = params.scale == nullptr ? 1.0F : params.scale[rows.adapter];
  const T* bias = static_cast<const T*>(params.bias[slice]);
  const auto value = [&](int row, int at) {
    const float delta = scale * collected<Shape>(all, row, at);
    return bias == nullptr ? delta : delta + to_float(bias[first_output + at]);
  };
  if (vector_y) {
#pragma unroll
    for (int own = 0; own < kOwn; ++own) {
      const int item = thread + own * Shape::kThreads;
      const int row = item / kVectorsOfRow;
      const int at = item % kVectorsOfRow * kPerVector;
      if (row < rows.count && at < count) {
        alignas(16) T numbers[kPerVector];
        *reinterpret_cast<uint4*>(numbers) = before[own];
#pragma unroll
        for (int i = 0; i < kPerVector; ++i) {
          const float delta = value(row, at + i);
          numbers[i] = from_float<T>(params.add_inputs ? delta + to_float(numbers[i]) : delta);
        }
        *reinterpret_cast<uint4*>(y + rows.tokens[row] * params.y_stride + at) =
            *reinterpret_cast<const uint4*>(numbers);
      }
    }
    return;
  }
  for (int item = thread; item < rows.count * Shape::kColumns; item += Shape::kThreads) {
    const int row = item / Shape::kColumns;
    const int at = item % Shape::kColumns;
    if (at < count) {
      T* to = y + rows.tokens[row] * params.y_stride + at;
      const float delta = value(row, at);
      *to = from_float<T>(params.add_inputs ? delta + to_float(*to) : delta);
    }
  }
}

}  // namespace lora_bench::kernels
