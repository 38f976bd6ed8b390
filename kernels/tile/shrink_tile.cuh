#pragma once

#include "kernels/params.h"
#include "kernels/tile/product.cuh"
#include "kernels/tile/shrink_tile.h"

namespace lora_bench::kernels {

// Rows of one adapter that a block takes.
struct GroupRows {
  const std::int32_t* tokens = nullptr;
  int count = 0;
  std::int64_t adapter = 0;
  int rank = 0;
};

// The rows of tile `tile` of a group or segment that the plan lists; none where it ends before, or
// is of rows without an adapter. Of an empty one the id may be anything.
template <typename Params>
__device__ inline GroupRows rows_of_group(const Params& params, std::int64_t group,
                                          std::int64_t tile, int rows_per_tile) {
  const std::int32_t adapter = params.active_ids[group];
  const std::int64_t first = params.group_starts[group] + tile * rows_per_tile;
  const std::int64_t left = params.group_starts[group + 1] - first;
  GroupRows rows;
  if (left <= 0 || adapter < 0) {
    return rows;
  }
  rows.count = left < rows_per_tile ? static_cast<int>(left) : rows_per_tile;
  rows.adapter = adapter;
  rows.tokens = params.token_order + first;
  rows.rank = params.rank[adapter];
  return rows;
}

// One lane of one slice.
struct Lane {
  int slice = 0;
  int lane = 0;
};

template <typename T>
__device__ inline void store_lane(const ShrinkParams& params, const ShrinkStore& store, Lane at,
                                  std::int64_t token, std::int64_t part, float scale, float sum) {
  const std::int64_t row = at.slice * params.tokens + token;
  const std::int64_t element = row * params.max_rank + at.lane;
  switch (store.combine) {
    case Combine::kNone:
      if (store.wide) {
        static_cast<float*>(params.h)[element] = scale * sum;
      } else {
        static_cast<T*>(params.h)[element] = from_float<T>(scale * sum);
      }
      break;
    case Combine::kAtomic:
      atomicAdd(static_cast<float*>(params.h) + element, scale * sum);
      break;
    case Combine::kOrdered:
      store.parts[part * params.slices * params.tokens * params.max_rank + element] = sum;
      break;
  }
}

// x rows of `rows` times `lanes` lanes of A over the K of [first, end); `lane_of(i)` is the i-th.
template <typename Shape, bool kVector, typename T, typename LaneOf>
__device__ inline void shrink_tile(const ShrinkParams& params, const ShrinkStore& store,
                                   const GroupRows& rows, int lanes, LaneOf lane_of,
                                   std::int64_t part, std::int64_t first, std::int64_t end) {
  extern __shared__ __align__(128) char shared[];
  __shared__ const T* left[Shape::kRows];
  __shared__ const T* right[Shape::kColumns];
  const int thread = static_cast<int>(threadIdx.x);
  for (int row = thread; row < rows.count; row += Shape::kThreads) {
    left[row] = static_cast<const T*>(params.x) + rows.tokens[row] * params.x_stride;
  }
  for (int i = thread; i < lanes; i += Shape::kThreads) {
    const Lane at = lane_of(i);
    right[i] = static_cast<const T*>(params.a[at.slice]) +
               (rows.adapter * params.max_rank + at.lane) * params.in_features;
  }
  __syncthreads();  // the addresses are complete
  float sums[Shape::kColumnTiles][4] = {};
  multiply<Shape, kVector>(shared, left, rows.count, right, lanes, first, end, sums);
  const float* all = collect<Shape>(shared, sums);
  const float scale = params.scale == nullptr ? 1.0F : params.scale[rows.adapter];
  for (int item = thread; item < rows.count * Shape::kColumns; item += Shape::kThreads) {
    const int row = item / Shape::kColumns;
    const int column = item % Shape::kColumns;
    if (column < lanes) {
      store_lane<T>(params, store, lane_of(column), rows.tokens[row], part, scale,
                    collected<Shape>(all, row, column));
    }
  }
}

}  // namespace lora_bench::kernels
