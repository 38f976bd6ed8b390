#pragma once

#include "kernels/paired/copies.cuh"
#include "kernels/paired/link.cuh"
#include "kernels/paired/paired_plan.h"
#include "kernels/paired/paired_tuning.h"
#include "kernels/segment/fragments.cuh"
#include "kernels/segment/segment.cuh"
#include "kernels/segment/vectors.cuh"

// shrink of the pair.
//   grid      (row tiles) x (parts of K) x (lane tiles), the last fastest: they share x in the L2
//   block     8 warps; a tile of 16 * kRows rows of one adapter times 8 * kLanes lanes of all
//             slices; every warp has the whole tile in registers and 64 of every 512 elements of K
//   memory    each thread copies in the background what it will multiply itself, into places of its
//             own in shared memory: a longer register file, no barrier while K runs
//   barriers  after K: sums are written where copies lay; then read by others; then written over
//   order     steps of a warp, then warps 0 to 7, then groups of K: from in_features alone
//   bytes     x rows x lane tiles, A x row tiles, all but the first from the L2
//   bound     memory; tensor cores near it from 64 rows and 64 lanes on
namespace lora_bench::kernels {

template <int kRows, int kLanes>
constexpr int kPairedSlots = 2 * kRows + kLanes;  // of 16 bytes, a thread and step

template <int kRows, int kLanes, int kStages>
__host__ __device__ constexpr int paired_shared_bytes() {
  constexpr int kCopies = kStages * kPairedSlots<kRows, kLanes> * kPairedShrinkThreads * 16;
  constexpr int kSums = kRows * kLanes * 4 * kPairedShrinkThreads * 4;
  return kCopies > kSums ? kCopies : kSums;
}

// Eight elements of a row into `slot`, zeros where there are none.
template <bool kVectors, typename T>
__device__ inline void bring_eight(uint4* slot, const T* row, std::int64_t at, std::int64_t end,
                                   bool wanted) {
  if constexpr (kVectors) {  // rows are whole vectors: all eight or none
    const bool there = wanted && at < end;
    const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(slot));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address),
                 "l"(there ? row + at : row), "r"(there ? 16 : 0)
                 : "memory");
  } else {
    *slot = wanted ? load_eight<false>(row, at, end) : uint4{};
  }
}

template <typename T, bool kVectors, int kRows, int kLanes, int kStages>
__global__ void __launch_bounds__(kPairedShrinkThreads)
    paired_shrink(const __grid_constant__ ShrinkParams params,
                  const __grid_constant__ PairedShrinkPlan plan) {
  constexpr int kWarps = kPairedShrinkThreads / 32;
  constexpr int kSlots = kPairedSlots<kRows, kLanes>;
  constexpr int kSums = kRows * kLanes * 4;  // of a thread
  extern __shared__ uint4 shared[];
  await_previous_kernel();
  const std::int64_t lane_tile = blockIdx.x % plan.lane_tiles;
  const auto part = static_cast<int>(blockIdx.x / plan.lane_tiles % plan.parts);
  const Segment segment =
      find_segment(params, blockIdx.x / plan.lane_tiles / plan.parts, 16 * kRows);
  if (segment.rows == 0) {
    return;
  }
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int g = thread % 32 / 4;
  const int t = thread % 4;
  const int eights = (segment.rows + 7) / 8;

  const T* x[2 * kRows];
#pragma unroll
  for (int i = 0; i < 2 * kRows; ++i) {
    x[i] = static_cast<const T*>(params.x) + token_of(params, segment, g + 8 * i) * params.x_stride;
  }
  const auto rank = static_cast<int>(params.rank[segment.adapter]);
  const auto max_rank = static_cast<int>(params.max_rank);
  const auto first_lane = static_cast<int>(lane_tile) * (8 * kLanes);
  const T* a[kLanes];
  bool owned[kLanes];
  bool any = false;
#pragma unroll
  for (int j = 0; j < kLanes; ++j) {
    const int slice = (first_lane + 8 * j + g) / max_rank;
    const int row = (first_lane + 8 * j + g) % max_rank;
    owned[j] = slice < params.slices && row < rank;
    any = any || owned[j];
    a[j] = static_cast<const T*>(params.a[owned[j] ? slice : 0]) +
           (segment.adapter * max_rank + (owned[j] ? row : 0)) * params.in_features;
  }
  if (__any_sync(0xFFFFFFFFU, any) == 0) {
    return;  // the whole block: the same lanes in every warp
  }

  const int groups_of_part = plan.parts == 1 ? plan.groups : 1;
  constexpr int kPerThread = (kSums * 32 + kPairedShrinkThreads - 1) / kPairedShrinkThreads;
  float total[kPerThread] = {};
  for (int group = 0; group < groups_of_part; ++group) {
    const std::int64_t start = (part + group) * plan.group_depth + warp * 64 + t * 8;
    const std::int64_t end = (part + group + 1) * plan.group_depth < params.in_features
                                 ? (part + group + 1) * plan.group_depth
                                 : params.in_features;
    const std::int64_t left = end - (start - t * 8);
    const auto steps =
        left > 0 ? static_cast<int>((left + kPairedStride - 1) / kPairedStride) * 2 : 0;
    const auto bring = [&](int step) {
      if (step < steps) {
        const std::int64_t k = start + step / 2 * kPairedStride + step % 2 * 32;
        uint4* slot = shared + step % kStages * (kSlots * kPairedShrinkThreads) + thread;
#pragma unroll
        for (int i = 0; i < 2 * kRows; ++i) {
          if (i < eights) {
            bring_eight<kVectors>(slot + i * kPairedShrinkThreads, x[i], k, end,
                                  g + 8 * i < segment.rows);
          }
        }
#pragma unroll
        for (int j = 0; j < kLanes; ++j) {
          bring_eight<kVectors>(slot + (2 * kRows + j) * kPairedShrinkThreads, a[j], k, end,
                                owned[j]);
        }
      }
      close_brought();
    };
    float sum[kRows][kLanes][4] = {};
#pragma unroll 1
    for (int step = 0; step < kStages - 1; ++step) {
      bring(step);
    }
    let_next_kernel_start();
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      await_brought<kStages - 2>();
      const uint4* slot = shared + step % kStages * (kSlots * kPairedShrinkThreads) + thread;
      uint4 lanes[kLanes];
#pragma unroll
      for (int j = 0; j < kLanes; ++j) {
        lanes[j] = slot[(2 * kRows + j) * kPairedShrinkThreads];
      }
      bring(step + kStages - 1);  // into what this thread has read a step ago
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        if (2 * i < eights) {
          const uint4 top = slot[2 * i * kPairedShrinkThreads];
          const uint4 bottom =
              2 * i + 1 < eights ? slot[(2 * i + 1) * kPairedShrinkThreads] : uint4{};
#pragma unroll
          for (int j = 0; j < kLanes; ++j) {
            multiply_16<T>(sum[i][j], top.x, bottom.x, top.y, bottom.y, lanes[j].x, lanes[j].y);
            multiply_16<T>(sum[i][j], top.z, bottom.z, top.w, bottom.w, lanes[j].z, lanes[j].w);
          }
        }
      }
    }
    await_brought<0>();
    __syncthreads();  // all copies have been multiplied, or all sums of the group before read
    auto* all = reinterpret_cast<float*>(shared);
    const float* mine = &sum[0][0][0];
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      all[(warp * kSums + i) * 32 + thread % 32] = mine[i];
    }
    __syncthreads();  // all sums are there
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) {
      const int element = thread + j * kPairedShrinkThreads;
      if (element < kSums * 32) {
        float whole = all[element];
#pragma unroll
        for (int w = 1; w < kWarps; ++w) {
          whole += all[w * kSums * 32 + element];
        }
        total[j] = group == 0 ? whole : total[j] + whole;
      }
    }
    __syncthreads();  // all sums have been read
  }

#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    const int element = thread + j * kPairedShrinkThreads;
    const int place = element / 32;
    const int row = place / (kLanes * 4) * 16 + place % 4 / 2 * 8 + element % 32 / 4;
    const int packed = first_lane + place / 4 % kLanes * 8 + element % 4 * 2 + place % 2;
    const int slice = packed / max_rank;
    const int lane = packed % max_rank;
    if (element < kSums * 32 && row < segment.rows && slice < params.slices && lane < rank) {
      const std::int64_t token = params.token_order[segment.first + row];
      const std::int64_t to =
          ((std::int64_t{part} * params.slices + slice) * params.tokens + token) * max_rank + lane;
      plan.sums[to] = total[j];
    }
  }
}

}  // namespace lora_bench::kernels
