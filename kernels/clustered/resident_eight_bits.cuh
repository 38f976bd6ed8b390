#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/asynchronous.cuh"
#include "kernels/clustered/eight_bits.cuh"
#include "kernels/clustered/hidden.cuh"
#include "kernels/clustered/places.cuh"
#include "kernels/clustered/resident_plan.h"
#include "kernels/clustered/resident_tuning.h"
#include "kernels/params.h"

// Weights of eight bits in `resident`. They are in shared memory long before they are multiplied,
// so a block makes numbers of T of them there, where it would wait anyway: of A before the wait for
// the kernel before, of B while sums are on their way. Codes come to the last part of the room of
// their numbers. Its products are those of weights of 16 bits.
namespace lora_bench::kernels {

template <typename W>
using ResidentPlanOf =
    std::conditional_t<std::is_same_v<W, EightBits>, ResidentEightPlan, ResidentPlan>;

// Numbers of eight codes each, by a warp; they may lie where other threads of it read.
template <typename T, int kVectors>
__device__ inline void widen_vectors(const char* const (&from)[kVectors],
                                     char* const (&to)[kVectors], const bool (&there)[kVectors],
                                     bool e5m2) {
  uint2 codes[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    codes[i] = there[i] ? load_shared<uint2>(from[i]) : uint2{};
  }
  uint4 numbers[kVectors];
  widen<T>(codes, e5m2, numbers);
  __syncwarp();  // all have been read
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (there[i]) {
      *reinterpret_cast<uint4*>(to[i]) = numbers[i];
    }
  }
  __syncwarp();
}

// 16 lanes of `length` elements of a chain, by all warps of a block; codes of a lane begin
// `codes_at` bytes behind its numbers. When n of them are numbers, those end at byte 2 n, and the
// codes that are left begin at `codes_at` + n. That is further on, as `length` is at most
// `codes_at`.
template <typename T>
__device__ inline void widen_pair(char* lanes, int pitch, int codes_at, int length, bool e5m2) {
  const int own = 8 * static_cast<int>(threadIdx.x % 32);
#pragma unroll 1
  for (int lane = static_cast<int>(threadIdx.x / 32); lane < 8;
       lane += static_cast<int>(blockDim.x / 32)) {
    char* to = lanes + lane * pitch + 2 * own;
    const char* from = to + codes_at - own;
    const int to_second = 8 * pitch;
    int left = length - own;
#pragma unroll 1
    while (left > -own) {
      widen_vectors<T, 2>({from, from + to_second}, {to, to + to_second}, {left > 0, left > 0},
                          e5m2);
      from += 256;
      to += 512;
      left -= 256;
    }
  }
}

// The first of the pairs of a block was asked for by its first warp, whose barrier is the first of
// them, 16 bytes before that of the next.
template <typename T, typename LengthOf>
__device__ inline void widen_pairs(char* pairs, int count, const ResidentEightPlan& plan,
                                   std::uint32_t barriers, const LengthOf& length_of) {
  std::uint32_t barrier = barriers;
#pragma unroll 1
  for (int pair = 0; pair < count; ++pair) {
    await_phase(barrier, 0);
    widen_pair<T>(pairs + pair * 16 * plan.lane_pitch, plan.lane_pitch, plan.chain, length_of(pair),
                  plan.scales.e5m2);
    barrier += 16;
    barrier = barrier == barriers + blockDim.x / 2 ? barriers : barrier;
  }
}

// Where the codes of a unit of B begin in its room, of which eight columns have `eight_bytes`.
__device__ inline int codes_of_unit(int max_rank, int eight_bytes) {
  return kResidentColumns / 8 * eight_bytes - kResidentColumns * max_rank;
}

// By a warp. Codes end where the room does, so numbers come no further than codes are read. Columns
// that a unit has not become what nobody reads.
template <typename T>
__device__ inline void widen_unit(char* unit, int max_rank, int eight_bytes, bool e5m2) {
  const float per_eight = inverse_of(8 * max_rank);
  const int pad = eight_bytes - 16 * max_rank;
  const char* const codes = unit + codes_of_unit(max_rank, eight_bytes);
  const int count = kResidentColumns * max_rank;
  const int own = 8 * static_cast<int>(threadIdx.x % 32);
  const auto to = [&](int n) { return unit + 2 * n + pad * divide(n, per_eight); };
#pragma unroll 1
  for (int n = own; n - own < count; n += 512) {
    widen_vectors<T, 2>({codes + n, codes + n + 256}, {to(n), to(n + 256)},
                        {n < count, n + 256 < count}, e5m2);
  }
}

// By the block, of every lane below the rank.
__device__ inline void bring_scales_of_lanes(const ResidentEightPlan& plan, std::uint32_t to,
                                             int slices, int eights_of_slice, std::int64_t adapter,
                                             std::int64_t max_rank, int rank) {
  const WeightScales& scales = plan.scales;
  const float per_slice = inverse_of(8 * eights_of_slice);
#pragma unroll 1
  for (int item = static_cast<int>(threadIdx.x); item < slices * eights_of_slice * 8;
       item += static_cast<int>(blockDim.x)) {
    const int slice = divide(item, per_slice);
    const int lane = item - slice * eights_of_slice * 8;
    if (lane < rank) {
      copy_four(to + 4 * item,
                scales.a[slice] + (scales.of_rows ? adapter * max_rank + lane : adapter));
    }
  }
}

// By a warp, `columns` of a unit with their scales, which lie behind them.
__device__ inline void bring_codes_of_unit(const ExpandParams& e, const ResidentEightPlan& plan,
                                           std::uint32_t to, const UnitPlace& place, int columns,
                                           int eight_bytes, std::int64_t adapter,
                                           std::uint32_t barrier, std::uint64_t policy) {
  const auto max_rank = static_cast<int>(e.max_rank);
  const std::int64_t first = adapter * place.width + place.column;
  const int own = static_cast<int>(threadIdx.x % 32);
  if (own == 0) {
    copy_bulk(to + codes_of_unit(max_rank, eight_bytes),
              static_cast<const EightBits*>(e.b[place.slice]) + first * max_rank,
              columns * max_rank, barrier, policy);
  }
  const WeightScales& scales = plan.scales;
  if (own < columns) {
    copy_four(to + kResidentColumns / 8 * eight_bytes + 4 * own,
              scales.b[place.slice] + (scales.of_rows ? first + own : adapter));
  }
}

// Sums of four neighbouring columns, whose scales are at `scales`.
template <int kEights>
__device__ inline void multiply_by_scales(const char* scales, float (&sum)[2][kEights][4]) {
  const auto of = load_shared<float4>(scales);
#pragma unroll
  for (int n = 0; n < kEights; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sum[0][n][i] = __fmul_rn(of.x, sum[0][n][i]);
      sum[0][n][2 + i] = __fmul_rn(of.y, sum[0][n][2 + i]);
      sum[1][n][i] = __fmul_rn(of.z, sum[1][n][i]);
      sum[1][n][2 + i] = __fmul_rn(of.w, sum[1][n][2 + i]);
    }
  }
}

}  // namespace lora_bench::kernels
