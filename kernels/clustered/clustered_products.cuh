#pragma once

#include <cstdint>

#include "kernels/clustered/eight_bits.cuh"
#include "kernels/clustered/hidden.cuh"
#include "kernels/segment/fragments.cuh"

// The two products of `clustered`, from shared memory. A thread is t of its quad.
namespace lora_bench::kernels {

// `end` elements of eight lanes of A, of which this thread reads from `a` on four of each 16, times
// those of rows of x.
template <typename T, typename W>
__device__ inline void multiply_piece(const char* a, const char* x, int end, int t,
                                      const PlanOf<W>& plan, float (&sum)[4]) {
  constexpr int kGroup = 4;  // blocks of 32 elements of K at a time
  constexpr bool kEight = sizeof(W) == 1;
  constexpr int kUnroll = kEight ? 1 : 2;
#pragma unroll kUnroll
  for (int k = 0; k < end; k += 32 * kGroup) {
    uint4 lanes[kGroup];
    uint4 row[kGroup];
    uint2 codes[kGroup];
#pragma unroll
    for (int b = 0; b < kGroup; ++b) {
      if constexpr (kEight) {
        codes[b] = load_codes(a + k + 32 * b);
      } else {
        lanes[b] = load_fours(a + 2 * (k + 32 * b));
      }
      row[b] = load_fours(x + 2 * (k + 32 * b));
    }
    if (k + 32 * kGroup > end) {  // what lies beyond the chain is not of it
#pragma unroll
      for (int b = 0; b < kGroup; ++b) {
        const int left = end - k - 32 * b - t * 4;
        if constexpr (kEight) {
          codes[b] = {left > 0 ? codes[b].x : 0, left > 16 ? codes[b].y : 0};
        } else {
          keep_fours(lanes[b], left);
        }
        keep_fours(row[b], left);
      }
    }
    if constexpr (kEight) {
      widen<T>(codes, plan.scales.e5m2, lanes);
    }
#pragma unroll
    for (int b = 0; b < kGroup; ++b) {
      multiply_16<T>(sum, row[b].x, 0, row[b].y, 0, lanes[b].x, lanes[b].y);
      multiply_16<T>(sum, row[b].z, 0, row[b].w, 0, lanes[b].z, lanes[b].w);
    }
  }
}

// Columns of B times h, whose fragments of 16 lanes, `steps` of a slice, lie from `hidden` on.
// `rows` is the fragment that was read last.
template <typename W, typename T, typename H, int kTiles>
__device__ inline void multiply_unit(const char* b, int max_rank, int rank, int steps, int slice,
                                     int lane, const char* hidden, const PlanOf<W>& plan,
                                     HiddenFragment<T, H>& rows, int& task_of_rows,
                                     float (&sum)[kTiles][4]) {
  constexpr bool kEight = sizeof(W) == 1;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    uint2 four[kTiles];
    std::uint32_t codes[kTiles];
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      if constexpr (kEight) {
        codes[j] = load_shared<std::uint32_t>(b + step * 16 + j * (2 * max_rank));
      } else {
        four[j] = load_shared<uint2>(b + step * 32 + j * (4 * max_rank));
      }
    }
    take_rows(hidden, slice * steps + step, lane, rows, task_of_rows);
    if (16 * step + 16 > rank) {  // padding is not of the adapter
      if constexpr (kEight) {
        keep_codes(codes, rank - 16 * step - 4 * (lane % 4));
      } else {
        keep_lanes(four, rank - 16 * step - 4 * (lane % 4));
      }
    }
    if constexpr (kEight) {
      multiply_codes(rows, sum, codes, plan.scales.e5m2);
    } else {
      multiply_columns(rows, sum, four);
    }
  }
}

}  // namespace lora_bench::kernels
