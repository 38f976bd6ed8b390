#pragma once

#include <cstdint>

#include "kernels/clustered/clustered_tuning.h"
#include "kernels/clustered/eight_bits.cuh"
#include "kernels/clustered/hidden.cuh"
#include "kernels/segment/fragments.cuh"
#include "kernels/segment/matrices.cuh"

// A unit of columns of B in eight bits times a single row of h, and on to y. Columns are the
// operand of 16 rows, so half as many products do it as where rows are. What that leaves in a
// thread lies apart in y: it goes through shared memory, and a thread takes two neighbouring
// columns. Beside eight bits instructions are what a unit costs.
namespace lora_bench::kernels {

// Two numbers of eight lanes each, of columns g of two tiles of eight.
template <typename T, typename H>
__device__ inline void multiply_two_columns(const HiddenFragment<T, H>& rows, float (&sum)[4],
                                            const uint2& first, const uint2& second) {
  if constexpr (sizeof(H) != sizeof(float)) {
    multiply_16<T>(sum, first.x, second.x, first.y, second.y, rows.row[0].x, rows.row[0].y);
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
#pragma unroll
    for (int p = 2; p >= 0; --p) {
      multiply_16<T>(sum, first.x, second.x, first.y, second.y, rows.part[p][0].x,
                     rows.part[p][0].y);
    }
  } else {
    const float2 of_first[2] = {floats_of<__half>(first.x), floats_of<__half>(first.y)};
    const float2 of_second[2] = {floats_of<__half>(second.x), floats_of<__half>(second.y)};
#pragma unroll
    for (int p = 2; p >= 0; --p) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        multiply_tf32(sum, __float_as_uint(of_first[i].x), __float_as_uint(of_second[i].x),
                      __float_as_uint(of_first[i].y), __float_as_uint(of_second[i].y),
                      rows.part[p][0][2 * i], rows.part[p][0][2 * i + 1]);
      }
    }
  }
}

// Four codes of column 8 * j + g of a unit, of lanes 4 * t and the next of 16 that begin at `b`.
template <int kTiles>
__device__ inline void load_columns(const char* b, int max_rank, int lane,
                                    std::uint32_t (&codes)[kTiles]) {
  if (max_rank % 16 == 0) {  // rows of 16 bytes, as load_matrices wants them
#pragma unroll
    for (int j = 0; j < kTiles; j += 4) {
      const uint4 four = load_matrices(shared_address(b) + (8 * j + lane) * max_rank);
      codes[j] = four.x;
      codes[j + 1] = four.y;
      codes[j + 2] = four.z;
      codes[j + 3] = four.w;
    }
    return;
  }
  const char* const own = b + lane / 4 * max_rank + lane % 4 * 4;
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    codes[j] = load_shared<std::uint32_t>(own + 8 * j * max_rank);
  }
}

// Threads with t = 0 are left column 8 * i + g in sum[i / 2], number i % 2 * 2. Lanes of the first
// column begin at `b`.
template <typename T, typename H, int kTiles>
__device__ inline void multiply_eight_unit(const char* b, int max_rank, int rank, int steps,
                                           int slice, int lane, const char* hidden, bool e5m2,
                                           HiddenFragment<T, H>& rows, int& task_of_rows,
                                           float (&sum)[kTiles / 2][4]) {
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    std::uint32_t codes[kTiles];
    load_columns<kTiles>(b + step * 16, max_rank, lane, codes);
    take_rows(hidden, slice * steps + step, lane, rows, task_of_rows);
    if (16 * step + 16 > rank) {  // padding is not of the adapter
      keep_codes(codes, rank - 16 * step - 4 * (lane % 4));
    }
    uint2 numbers[kTiles];
    widen<T>(codes, e5m2, numbers);
#pragma unroll
    for (int j = 0; j < kTiles; j += 2) {
      multiply_two_columns<T>(rows, sum[j / 2], numbers[j], numbers[j + 1]);
    }
  }
}

// Where a unit of columns of y goes, and what it is made of beside the sums.
template <typename T>
struct UnitOfY {
  int left;            // columns of the slice from the first of the unit on
  const char* before;  // as copied
  const char* scales;  // of its columns of B, as copied
  float scale_of_all;  // of them, where each has no other
  float scale;         // of the adapter
  const T* bias;       // of its columns; null: none
  T* to;               // in memory
  bool add_inputs;
};

template <typename T, int kTiles>
__device__ inline void finish_eight_unit(const EightBitsPlan& plan, const UnitOfY<T>& unit,
                                         int lane, float* staged,
                                         const float (&sum)[kTiles / 2][4]) {
  if (lane % 4 == 0) {
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      staged[8 * j + lane / 4] = sum[j / 2][j % 2 * 2];
    }
  }
  __syncwarp();
  const int at = 2 * lane;
  if (at < min(8 * kTiles, unit.left)) {
    const float2 of = *reinterpret_cast<const float2*>(staged + at);
    float2 by = {unit.scale_of_all, unit.scale_of_all};
    if (plan.scales.of_rows) {
      by = load_shared<float2>(unit.scales + 4 * at);
    }
    float2 delta = {__fmul_rn(unit.scale, __fmul_rn(by.x, of.x)),
                    __fmul_rn(unit.scale, __fmul_rn(by.y, of.y))};
    if (unit.bias != nullptr) {
      delta = {__fadd_rn(delta.x, to_float(unit.bias[at])),
               __fadd_rn(delta.y, to_float(unit.bias[at + 1]))};
    }
    if (unit.add_inputs) {
      const float2 inputs = floats_of<T>(load_shared<std::uint32_t>(unit.before + 2 * at));
      delta = {__fadd_rn(delta.x, inputs.x), __fadd_rn(delta.y, inputs.y)};
    }
    alignas(4) const T two[2] = {from_float<T>(delta.x), from_float<T>(delta.y)};
    *reinterpret_cast<std::uint32_t*>(unit.to + at) = *reinterpret_cast<const std::uint32_t*>(two);
  }
  __syncwarp();  // what lies there has been read
}

}  // namespace lora_bench::kernels
