#pragma once

#include "kernels/chains.cuh"
#include "kernels/panel/panel.h"
#include "kernels/panel/panel_tuning.h"
#include "kernels/params.h"
#include "kernels/segment/fragments.cuh"
#include "kernels/segment/segment.cuh"
#include "kernels/segment/vectors.cuh"

// How h gets to the shared memory of a block: S is its PanelExpandBlock.
namespace lora_bench::kernels {

// How many bf16 numbers an element of h is: an fp32 one has no fewer without loss.
template <typename H>
constexpr int kNumbersOfH = sizeof(H) == sizeof(float) ? 3 : 1;

// Two neighbouring lanes of h, which were rounded to H, as pairs of such numbers; the lowest last.
template <typename H>
__device__ inline void pairs_of_two(float x, float y, std::uint32_t (&pairs)[kNumbersOfH<H>]) {
  std::uint32_t of_x[3], of_y[3];
  split_in_three<0xFFFF0000U>(x, of_x);
  split_in_three<0xFFFF0000U>(y, of_y);
#pragma unroll
  for (int p = 0; p < kNumbersOfH<H>; ++p) {
    pairs[p] = __byte_perm(of_x[p], of_y[p], 0x7632);
  }
}

// Four lanes of kBatch rows: the parts added in pairs. All loads are under way together.
template <int kParts, int kBatch>
__device__ inline void sums_of_parts(const float* const (&row)[kBatch], std::int64_t elements,
                                     float4 (&sum)[kBatch]) {
  float4 of[kBatch][kParts];
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      of[i][part] = *reinterpret_cast<const float4*>(row[i] + part * elements);
    }
  }
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    sum[i] = add_in_pairs(of[i]);
  }
}

// h of a slice of all rows of the block, parts added up and scaled, zeros from the rank on:
// put(row, four, h) has four neighbouring lanes, `scales` what they are multiplied by before. By
// kThreads threads, numbered from 0.
template <int kParts, int kFours, int kThreads, typename Scales, typename Put>
__device__ inline void add_parts(const PanelSums& sums, const float* slice, std::int64_t max_rank,
                                 int rows, const std::int32_t* tokens, int rank, float scale,
                                 const Scales& scales, const Put& put) {
  constexpr int kBatch = kParts > 4 ? 2 : 4;  // as many as registers hold
#pragma unroll 1
  for (int first = static_cast<int>(threadIdx.x); first < rows * kFours;
       first += kBatch * kThreads) {
    const float* row[kBatch];
    float4 sum[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int item = min(first + i * kThreads, rows * kFours - 1);
      const int at = item % kFours * 4;
      row[i] = slice + tokens[item / kFours] * max_rank + (at < rank ? at : 0);
    }
    sums_of_parts<kParts>(row, sums.elements, sum);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int item = min(first + i * kThreads, rows * kFours - 1);
      const int left = rank - item % kFours * 4;
      sum[i] = scales(left > 0 ? item % kFours * 4 : 0, sum[i]);
      put(item / kFours, item % kFours,
          float4{left > 0 ? __fmul_rn(sum[i].x, scale) : 0.0F,
                 left > 1 ? __fmul_rn(sum[i].y, scale) : 0.0F,
                 left > 2 ? __fmul_rn(sum[i].z, scale) : 0.0F,
                 left > 3 ? __fmul_rn(sum[i].w, scale) : 0.0F});
    }
  }
}

// The same for as many parts as there are.
template <int kFours, int kThreads, typename Scales, typename Put>
__device__ inline void add_all_parts(const PanelSums& sums, const float* slice,
                                     std::int64_t max_rank, int rows, const std::int32_t* tokens,
                                     int rank, float scale, const Scales& scales, const Put& put) {
  const auto add = [&]<int kParts>() {
    add_parts<kParts, kFours, kThreads>(sums, slice, max_rank, rows, tokens, rank, scale, scales,
                                        put);
  };
  switch (sums.parts) {
    case 1:
      add.template operator()<1>();
      break;
    case 2:
      add.template operator()<2>();
      break;
    case 4:
      add.template operator()<4>();
      break;
    default:
      add.template operator()<kChains>();
  }
}

// What sums of a row of the block are multiplied by: the adapter's scale and the factor of the row.
// A row behind the last one has that of the last.
__device__ inline float scale_of_row(const ExpandParams& params, float scale,
                                     const Segment& segment, const std::int32_t* tokens, int row) {
  return params.factor == nullptr
             ? scale
             : __fmul_rn(scale, __ldg(params.factor + tokens[min(row, segment.rows - 1)]));
}

template <typename H>
__device__ inline float4 rounded_to(const float4& h) {
  if constexpr (sizeof(H) == sizeof(float)) {
    return h;
  } else {
    return {to_float(from_float<H>(h.x)), to_float(from_float<H>(h.y)),
            to_float(from_float<H>(h.z)), to_float(from_float<H>(h.w))};
  }
}

// h of a slice that is stored as H to shared memory, as fp32.
template <typename S, typename H>
__device__ inline void hold_stored(const H* slice, std::int64_t max_rank, int rows,
                                   const std::int32_t* tokens, int rank, unsigned char* held) {
  constexpr int kLanes = S::kSteps * 16;
#pragma unroll 4
  for (int item = static_cast<int>(threadIdx.x); item < rows * kLanes; item += S::kThreads) {
    const int row = item / kLanes;
    const int at = item % kLanes;
    reinterpret_cast<float*>(held + row * S::kPitchOfH)[at] =
        at < rank ? to_float(slice[tokens[row] * max_rank + at]) : 0.0F;
  }
}

// h of a slice, from wherever it is. H is what it is rounded to.
template <typename S, typename H, typename Scales>
__device__ inline void hold_hidden(const ExpandParams& params, const PanelSums& sums,
                                   const Segment& segment, const std::int32_t* tokens, int slice,
                                   int rank, float scale, const Scales& scales,
                                   unsigned char* held) {
  const std::int64_t skipped = slice * params.tokens * params.max_rank;
  if (sums.sums == nullptr) {
    hold_stored<S>(static_cast<const H*>(params.h) + skipped, params.max_rank, segment.rows, tokens,
                   rank, held);
    return;
  }
  add_all_parts<S::kSteps * 4, S::kThreads>(
      sums, sums.sums + skipped, params.max_rank, segment.rows, tokens, rank, scale, scales,
      [&](int row, int four, const float4& h) {
        *reinterpret_cast<float4*>(held + row * S::kPitchOfH + four * 16) = rounded_to<H>(h);
      });
}

}  // namespace lora_bench::kernels
