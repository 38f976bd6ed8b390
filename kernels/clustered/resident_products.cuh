#pragma once

#include <cstdint>

#include "kernels/clustered/hidden.cuh"
#include "kernels/clustered/resident_hidden.cuh"
#include "kernels/segment/fragments.cuh"
#include "kernels/segment/matrices.cuh"

// The two products of `resident`, from shared memory.
namespace lora_bench::kernels {

// 16 rows of x times 16 lanes of A, as load_matrices asks for them: 16 elements of x at a time, 32
// of A; lanes of the second tile lie `to_second` bytes behind. Sums go on over a chain of `length`
// elements. No branch in the loop: else the compiler waits for the loads of what comes next.
template <typename T>
__device__ inline void multiply_chain(std::uint32_t a, int to_second, std::uint32_t x, int length,
                                      float (&sum)[2][4]) {
  struct Group {  // 64 elements
    uint4 lanes[2][2];
    uint4 rows[4];
  };
  const auto load = [&](Group& group, int k) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      group.rows[step] = load_matrices(x + 2 * k + 32 * step);
    }
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      group.lanes[0][b] = load_matrices(a + 2 * (k + 32 * b));
      group.lanes[1][b] = load_matrices(a + to_second + 2 * (k + 32 * b));
    }
  };
  const auto multiply = [&](const Group& group) {
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      const uint4 first = group.rows[2 * b];
      const uint4 second = group.rows[2 * b + 1];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint4 lanes = group.lanes[i][b];
        multiply_16<T>(sum[i], first.x, first.y, first.z, first.w, lanes.x, lanes.y);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint4 lanes = group.lanes[i][b];
        multiply_16<T>(sum[i], second.x, second.y, second.z, second.w, lanes.z, lanes.w);
      }
    }
  };
  Group now;
  Group next;
  load(now, 0);
  int k = 0;
#pragma unroll 1
  for (; k + 128 <= length; k += 128) {
    load(next, k + 64);
    multiply(now);
    load(now, k + 128);  // at the end what is not needed, but is shared memory
    multiply(next);
  }
#pragma unroll 1
  for (; k < length; k += 64) {
    load(now, k);
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      // What lies beyond the chain is not of it.
      keep_elements(now.lanes[0][b], length - k - 32 * b);
      keep_elements(now.lanes[1][b], length - k - 32 * b);
    }
    multiply(now);
  }
}

// Columns of B, `pitch` bytes from one to the next, times h; this thread has four lanes from `own`
// on of every 16.
template <typename Planes, int kTiles, int kEights>
__device__ inline void multiply_unit(const char* b, int pitch, const char* h, int rank, int own,
                                     float (&sum)[kTiles][kEights][4]) {
  constexpr int kPlane = 8 * kEights * Planes::kBytes;
#pragma unroll 1
  for (int step = 0; 16 * step < rank; ++step) {
    uint2 columns[2 * kTiles];
#pragma unroll
    for (int j = 0; j < 2 * kTiles; ++j) {
      columns[j] = load_shared<uint2>(b + step * 32 + j * pitch);
    }
    if (16 * step + 16 > rank) {  // padding is not of the adapter
      keep_lanes(columns, rank - 16 * step - own);
    }
#pragma unroll
    for (int p = Planes::kParts - 1; p >= 0; --p) {
#pragma unroll
      for (int n = 0; n < kEights; ++n) {
        const auto of_row = load_shared<typename Planes::Four>(
            h + (step * Planes::kParts + p) * kPlane + 8 * n * Planes::kBytes);
#pragma unroll
        for (int j = 0; j < kTiles; ++j) {
          Planes::multiply(sum[j][n], columns[2 * j], columns[2 * j + 1], of_row);
        }
      }
    }
  }
}

}  // namespace lora_bench::kernels
