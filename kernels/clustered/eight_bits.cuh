#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/asynchronous.cuh"
#include "kernels/clustered/clustered_plan.h"
#include "kernels/clustered/hidden.cuh"
#include "kernels/clustered/places.cuh"
#include "kernels/params.h"
#include "kernels/segment/codes.cuh"
#include "kernels/segment/vectors.cuh"

// Weights of eight bits: a thread has four codes in 32 bits, makes of them numbers of the type of
// the rows, without loss, and multiplies sums by their scales.
namespace lora_bench::kernels {

template <typename W>
using PlanOf = std::conditional_t<std::is_same_v<W, EightBits>, EightBitsPlan, ClusteredPlan>;

// What a thread has of a row's 32 elements, as load_fours: four of each 16.
__device__ inline uint2 load_codes(const char* at) {
  return {load_shared<std::uint32_t>(at), load_shared<std::uint32_t>(at + 16)};
}

template <typename T, bool kE5m2, int kCount>
__device__ inline void widen_as(const std::uint32_t (&codes)[kCount], uint2 (&to)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    to[i] = widen_four<T, kE5m2>(codes[i]);
  }
}
template <typename T, bool kE5m2, int kCount>
__device__ inline void widen_as(const uint2 (&codes)[kCount], uint4 (&to)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const uint2 first = widen_four<T, kE5m2>(codes[i].x);
    const uint2 second = widen_four<T, kE5m2>(codes[i].y);
    to[i] = {first.x, first.y, second.x, second.y};
  }
}
// All of a group by one branch, the same for all threads.
template <typename T, typename Codes, typename Numbers, int kCount>
__device__ inline void widen(const Codes (&codes)[kCount], bool e5m2, Numbers (&to)[kCount]) {
  if (e5m2) {
    widen_as<T, true>(codes, to);
  } else {
    widen_as<T, false>(codes, to);
  }
}

// The first `left` of four codes, which may be none or all; zeros for the others.
template <int kCount>
__device__ inline void keep_codes(std::uint32_t (&codes)[kCount], int left) {
  const std::uint32_t kept = left >= 4 ? 0xFFFFFFFFU : left <= 0 ? 0U : (1U << 8 * left) - 1;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    codes[i] &= kept;
  }
}

// Four lanes of each column times rows of h.
template <typename T, typename H, int kTiles>
__device__ inline void multiply_codes(const HiddenFragment<T, H>& rows, float (&sum)[kTiles][4],
                                      const std::uint32_t (&codes)[kTiles], bool e5m2) {
  if constexpr (std::is_same_v<T, __half> && std::is_same_v<H, float>) {
    // Column by column: registers are few beside so many of h.
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      rows.multiply(sum[j], e5m2 ? halves_of<true>(codes[j]) : halves_of<false>(codes[j]));
    }
  } else {
    uint2 four[kTiles];
    widen<T>(codes, e5m2, four);
    multiply_columns(rows, sum, four);
  }
}

// Scales, on their way into the sums. Weights of 16 bits have none: nothing comes of these then.

// That come to a slot with so many columns of B.
__device__ inline int bytes_of_scales(const ClusteredPlan&, int) { return 0; }
__device__ inline int bytes_of_scales(const EightBitsPlan& plan, int columns) {
  return plan.scales.of_rows ? 4 * columns : 0;
}
// `column` of all slots.
__device__ inline void bring_scales(const ClusteredPlan&, std::uint32_t, int, std::int64_t, int,
                                    std::uint32_t, std::uint64_t) {}
__device__ inline void bring_scales(const EightBitsPlan& plan, std::uint32_t to, int slice,
                                    std::int64_t column, int columns, std::uint32_t barrier,
                                    std::uint64_t policy) {
  if (plan.scales.of_rows) {
    copy_bulk(to, plan.scales.b[slice] + column, 4 * columns, barrier, policy);
  }
}

// Of a task, 16 lanes of a slice, the four lanes of A that this thread has of h; lanes at or above
// the rank have none.
__device__ inline float4 scales_of_task(const ClusteredPlan&, int, int, int, std::int64_t,
                                        std::int64_t, int, int) {
  return {};
}
__device__ inline float4 scales_of_task(const EightBitsPlan& plan, int task, int end_task,
                                        int steps, std::int64_t adapter, std::int64_t max_rank,
                                        int t, int rank) {
  if (task >= end_task) {
    return {};
  }
  const WeightScales& scales = plan.scales;
  const int slice = divide(task, inverse_of(steps));
  const int at = 16 * (task - slice * steps) + 4 * t;
  const float* const of_slot = scales.a[slice] + (scales.of_rows ? adapter * max_rank : adapter);
  float of[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    of[i] = at + i < rank ? __ldg(of_slot + (scales.of_rows ? at + i : 0)) : 0.0F;
  }
  return {of[0], of[1], of[2], of[3]};
}
__device__ inline void multiply_by_scales(const ClusteredPlan&, const float4&, float4&) {}
__device__ inline void multiply_by_scales(const EightBitsPlan&, const float4& by, float4& sums) {
  sums = {__fmul_rn(by.x, sums.x), __fmul_rn(by.y, sums.y), __fmul_rn(by.z, sums.z),
          __fmul_rn(by.w, sums.w)};
}

// Of B, where each column has no other.
__device__ inline float scale_of_all_columns(const ClusteredPlan&, int, std::int64_t) {
  return 1.0F;
}
__device__ inline float scale_of_all_columns(const EightBitsPlan& plan, int slice,
                                             std::int64_t adapter) {
  return plan.scales.of_rows ? 1.0F : __ldg(plan.scales.b[slice] + adapter);
}
// Sums of the neighbouring columns of a thread, in the order of ColumnsOfThread.
template <int kTiles>
__device__ inline void multiply_by_scales(const ClusteredPlan&, const char*, float,
                                          float (&)[kTiles][4]) {}
template <int kTiles>
__device__ inline void multiply_by_scales(const EightBitsPlan& plan, const char* of_columns,
                                          float of_all, float (&sum)[kTiles][4]) {
#pragma unroll
  for (int j = 0; j < kTiles; j += 2) {
    float4 of = {of_all, of_all, of_all, of_all};
    if (plan.scales.of_rows) {
      of = load_shared<float4>(of_columns + 8 * j);
    }
    sum[j][0] = __fmul_rn(of.x, sum[j][0]);
    sum[j][1] = __fmul_rn(of.y, sum[j][1]);
    sum[j + 1][0] = __fmul_rn(of.z, sum[j + 1][0]);
    sum[j + 1][1] = __fmul_rn(of.w, sum[j + 1][1]);
  }
}

}  // namespace lora_bench::kernels
