#pragma once

#include <type_traits>

#include "kernels/asynchronous.cuh"
#include "kernels/tile/mma.cuh"

// sums[row][column] = sum over k of left[row][k] * right[column][k], by one block on the tensor
// cores. Both sides are lists of addresses of rows that are contiguous in k, so a gather costs
// nothing: x by token and lanes of A for shrink, h by token and columns of B for expand.
namespace lora_bench::kernels {

// The warps of a block share its tile by rows (16 each), columns and k. `Depth` numbers of k are a
// stage; `Stages` are in shared memory, all but one of them under way.
template <int WarpsM, int WarpsN, int WarpsK, int Columns, int Depth, int Stages>
struct TileShape {
  static constexpr int kWarpsN = WarpsN;
  static constexpr int kWarpsM = WarpsM;
  static constexpr int kWarpsK = WarpsK;
  static constexpr int kRows = 16 * WarpsM;
  static constexpr int kColumns = Columns;
  static constexpr int kDepth = Depth;
  static constexpr int kStages = Stages;
  static constexpr int kThreads = 32 * WarpsM * WarpsN * WarpsK;
  static constexpr int kColumnTiles = Columns / WarpsN / 8;  // of 8, of one warp
  static constexpr int kPitch = Columns + 4;                 // of the collected sums, in floats
  static_assert(kColumnTiles % 2 == 0, "right fragments are loaded in pairs");
};

template <typename Shape, typename T, typename L>
__host__ __device__ constexpr int stage_bytes() {
  return Shape::kRows * Shape::kDepth * static_cast<int>(sizeof(L)) +
         Shape::kColumns * Shape::kDepth * static_cast<int>(sizeof(T));
}

template <typename Shape, typename T, typename L>
__host__ __device__ constexpr int shared_bytes() {
  const int stages = Shape::kStages * stage_bytes<Shape, T, L>();
  const int collected =
      Shape::kWarpsK * Shape::kRows * Shape::kPitch * static_cast<int>(sizeof(float));
  return stages > collected ? stages : collected;
}

// Where 16 bytes of a row lie in a stage: rotated by row, so that the eight rows of a matrix lie in
// different banks.
template <typename E, int kDepth>
__device__ inline int offset_in_stage(int row, int chunk) {
  constexpr int kChunks = kDepth * static_cast<int>(sizeof(E)) / 16;
  constexpr int kRowsPerLine = kChunks >= 8 ? 1 : 8 / kChunks;
  constexpr int kMask = (kChunks < 8 ? kChunks : 8) - 1;
  return (row * kChunks + (chunk ^ ((row / kRowsPerLine) & kMask))) * 16;
}

// Numbers [first, first + kDepth) of the first `count` rows; zeros from `end` on. Rows that are not
// there are left as they are: what they bring goes to sums that nobody reads.
template <bool kVector, int kThreads, int kDepth, typename E>
__device__ inline void fetch_rows(char* stage, const E* const* rows, int count, std::int64_t first,
                                  std::int64_t end) {
  constexpr int kPerChunk = 16 / static_cast<int>(sizeof(E));
  constexpr int kChunks = kDepth / kPerChunk;
  for (int item = static_cast<int>(threadIdx.x); item < count * kChunks; item += kThreads) {
    const int row = item / kChunks;
    const int chunk = item % kChunks;
    const std::int64_t at = first + chunk * kPerChunk;
    const std::int64_t left = end - at;
    const int valid = left >= kPerChunk ? kPerChunk : (left > 0 ? static_cast<int>(left) : 0);
    char* to = stage + offset_in_stage<E, kDepth>(row, chunk);
    const E* from = rows[row];
    if constexpr (kVector) {
      copy_sixteen(to, valid > 0 ? from + at : from, valid * static_cast<int>(sizeof(E)));
    } else {
      alignas(16) E numbers[kPerChunk];
#pragma unroll
      for (int i = 0; i < kPerChunk; ++i) {
        numbers[i] = i < valid ? from[at + i] : from_float<E>(0.0F);
      }
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(numbers);
    }
  }
}

// The 16 x 16 numbers of the left side from row `row` and number `k` of the stage on.
template <int kDepth, typename T>
__device__ inline void load_left(const char* stage, int row, int k, std::uint32_t (&to)[4]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  load_matrices(to, stage + offset_in_stage<T, kDepth>(row + lane % 16, k / 8 + lane / 16));
}

// The same of an fp32 left side, as three bf16 terms.
template <int kDepth>
__device__ inline void load_left_terms(const char* stage, int row, int k,
                                       std::uint32_t (&to)[3][4]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int part = 0; part < 4; ++part) {
    const int own_row = row + lane / 4 + (part % 2) * 8;
    const int own_k = k + lane % 4 * 2 + (part / 2) * 8;
    const auto pair = *reinterpret_cast<const float2*>(
        stage + offset_in_stage<float, kDepth>(own_row, own_k / 4) + own_k % 4 * 4);
    std::uint32_t terms[3];
    split_pair<3>(pair.x, pair.y, terms);
#pragma unroll
    for (int term = 0; term < 3; ++term) {
      to[term][part] = terms[term];
    }
  }
}

// Columns [column, column + 16): numbers 0 and 1 for the first eight, 2 and 3 for the others.
template <int kDepth, typename T>
__device__ inline void load_right(const char* stage, int column, int k, std::uint32_t (&to)[4]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int matrix = lane / 8;
  load_matrices(to, stage + offset_in_stage<T, kDepth>(column + matrix / 2 * 8 + lane % 8,
                                                       k / 8 + matrix % 2));
}

// Two bf16 terms for each fp16 of a right fragment.
__device__ inline void split_right(const std::uint32_t (&from)[4], std::uint32_t (&to)[2][4]) {
#pragma unroll
  for (int part = 0; part < 4; ++part) {
    const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&from[part]));
    std::uint32_t terms[2];
    split_pair<2>(pair.x, pair.y, terms);
    to[0][part] = terms[0];
    to[1][part] = terms[1];
  }
}

// One stage. Terms are added from the smallest to the largest.
template <typename Shape, typename T, typename L>
__device__ inline void multiply_stage(const char* left, const char* right, int left_count,
                                      float (&sums)[Shape::kColumnTiles][4]) {
  constexpr int kDepth = Shape::kDepth;
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int warp_k = warp % Shape::kWarpsK;
  const int row = warp / (Shape::kWarpsK * Shape::kWarpsN) * 16;
  const int column = warp / Shape::kWarpsK % Shape::kWarpsN * (Shape::kColumnTiles * 8);
  if (row >= left_count) {
    return;
  }
#pragma unroll
  for (int step = 0; step < kDepth / 16; step += Shape::kWarpsK) {
    const int k = (step + warp_k) * 16;
    if constexpr (sizeof(L) == sizeof(T)) {
      std::uint32_t own[4];
      load_left<kDepth, T>(left, row, k, own);
#pragma unroll
      for (int pair = 0; pair < Shape::kColumnTiles / 2; ++pair) {
        std::uint32_t other[4];
        load_right<kDepth, T>(right, column + pair * 16, k, other);
        multiply_add(T{}, sums[2 * pair], own, other);
        multiply_add(T{}, sums[2 * pair + 1], own, other + 2);
      }
    } else {
      std::uint32_t own[3][4];
      load_left_terms<kDepth>(left, row, k, own);
#pragma unroll
      for (int pair = 0; pair < Shape::kColumnTiles / 2; ++pair) {
        std::uint32_t other[2][4];
        load_right<kDepth, T>(right, column + pair * 16, k, other[0]);
        constexpr bool kTwoTerms = std::is_same_v<T, __half>;
        if constexpr (kTwoTerms) {
          std::uint32_t halves[4] = {other[0][0], other[0][1], other[0][2], other[0][3]};
          split_right(halves, other);
        }
#pragma unroll
        for (int right_term = kTwoTerms ? 1 : 0; right_term >= 0; --right_term) {
#pragma unroll
          for (int term = 2; term >= 0; --term) {
            multiply_add(__nv_bfloat16{}, sums[2 * pair], own[term], other[right_term]);
            multiply_add(__nv_bfloat16{}, sums[2 * pair + 1], own[term], other[right_term] + 2);
          }
        }
      }
    }
  }
}

// The whole sum over [first, end). The addresses in `left` and `right` (shared memory) must be
// complete and seen by all threads; `shared` may be used again after the next barrier.
template <typename Shape, bool kVector, typename T, typename L>
__device__ inline void multiply(char* shared, const L* const* left, int left_count,
                                const T* const* right, int right_count, std::int64_t first,
                                std::int64_t end, float (&sums)[Shape::kColumnTiles][4]) {
  constexpr int kLeftBytes = Shape::kRows * Shape::kDepth * static_cast<int>(sizeof(L));
  constexpr int kStageBytes = stage_bytes<Shape, T, L>();
  const std::int64_t steps = (end - first + Shape::kDepth - 1) / Shape::kDepth;
  const auto fetch = [&](std::int64_t step) {
    if (step < steps) {
      char* stage = shared + step % Shape::kStages * kStageBytes;
      const std::int64_t from = first + step * Shape::kDepth;
      fetch_rows<kVector, Shape::kThreads, Shape::kDepth>(stage, left, left_count, from, end);
      fetch_rows<kVector, Shape::kThreads, Shape::kDepth>(stage + kLeftBytes, right, right_count,
                                                          from, end);
    }
    close_copies();
  };
  for (int step = 0; step < Shape::kStages - 1; ++step) {
    fetch(step);
  }
  for (std::int64_t step = 0; step < steps; ++step) {
    await_copies<Shape::kStages - 2>();
    __syncthreads();  // the stage has come for all, and all have left the one that is filled next
    fetch(step + Shape::kStages - 1);
    const char* stage = shared + step % Shape::kStages * kStageBytes;
    multiply_stage<Shape, T, L>(stage, stage + kLeftBytes, left_count, sums);
  }
  await_copies<0>();
}

// The sums of all warps as [row][kPitch] floats at `shared`; those of the warps that share k are
// added in ascending order. Barriers inside.
template <typename Shape>
__device__ inline const float* collect(char* shared, const float (&sums)[Shape::kColumnTiles][4]) {
  __syncthreads();  // all have read their last stage
  auto* all = reinterpret_cast<float*>(shared);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int row = warp / (Shape::kWarpsK * Shape::kWarpsN) * 16 + lane / 4;
  const int column =
      warp / Shape::kWarpsK % Shape::kWarpsN * (Shape::kColumnTiles * 8) + lane % 4 * 2;
  float* own = all + (warp % Shape::kWarpsK * Shape::kRows + row) * Shape::kPitch + column;
#pragma unroll
  for (int tile = 0; tile < Shape::kColumnTiles; ++tile) {
    own[tile * 8] = sums[tile][0];
    own[tile * 8 + 1] = sums[tile][1];
    own[8 * Shape::kPitch + tile * 8] = sums[tile][2];
    own[8 * Shape::kPitch + tile * 8 + 1] = sums[tile][3];
  }
  __syncthreads();
  return all;
}

template <typename Shape>
__device__ inline float collected(const float* all, int row, int column) {
  float sum = all[row * Shape::kPitch + column];
#pragma unroll
  for (int k = 1; k < Shape::kWarpsK; ++k) {
    sum += all[(k * Shape::kRows + row) * Shape::kPitch + column];
  }
  return sum;
}

}  // namespace lora_bench::kernels
