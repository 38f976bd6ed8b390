#pragma once

#include "kernels/asynchronous.cuh"
#include "kernels/chains.cuh"
#include "kernels/chains.h"
#include "kernels/link.cuh"
#include "kernels/panel/panel_groups.cuh"
#include "kernels/panel/panel_joined_bring.cuh"
#include "kernels/panel/panel_plan.h"
#include "kernels/panel/panel_products.cuh"
#include "kernels/panel/panel_rows.cuh"
#include "kernels/panel/panel_shrink.cuh"
#include "kernels/panel/panel_tuning.h"
#include "kernels/segment/fragments.cuh"
#include "kernels/segment/matrices.cuh"

// shrink of a panel where blocks are few: the eight that have the chains of a tile are a cluster
// and add them, so h leaves in one part. What it takes is latency, so nothing waits that need not.
//   grid      (row tiles) x (lane tiles) x (chains), the last a cluster
//   block     warps that bring, and warps that multiply: one chain of a tile of rows of one adapter
//             times lanes of all slices
//   memory    a ring of stages, of as many elements of K as the tile says. 64 of them of all rows
//             and lanes follow each other, chunk c of 16 bytes of row r at c ^ (r % 8): eight rows
//             lie in different banks, as products of four warps expect it, too
//   barriers  two a stage: what it holds has come; it has been read. No barrier of the block in the
//             loop
//   products  on sm_90a by groups of four warps (wgmma): 64 rows times some lanes, or 64 lanes
//   times
//             all rows where those are fewer. Else mma.sync, the operands of the next 32 elements
//             loaded before these are multiplied; the same bits
//   order     that of panel_shrink: a chain 16 elements at a time, chains in pairs
//   sums      fragment n of all blocks goes to block n modulo the cluster, which adds and writes
//   it.
//             A block ends when all that is sent to it has come, so nobody writes to one that is
//             gone
//   start     what the ring takes of A is asked for before the kernel before this one has ended
//   bytes     x once a lane tile, A once a row tile, from the L2
//   bound     copies from the L2; with mma.sync the latency of products that depend on each other
namespace lora_bench::kernels {

// All products of a chain, by warps in groups of four; sums of 16 of the 64 of a group and of eight
// others each follow one another. A stage is given back when those after it have been asked for.
template <typename T, typename S>
__device__ inline void multiply_joined(float (&sum)[S::kWide / 2], std::uint32_t first,
                                       std::uint32_t second, int steps, std::uint32_t full,
                                       std::uint32_t read) {
  const std::uint64_t at_first = rows_of_128(first);
  const std::uint64_t at_second = rows_of_128(second);
  int stage = 0;
  unsigned parity = 0;
  std::uint32_t before = 0;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    await_phase(full + stage * 8, parity);
    show_to_groups();  // copies of 16 bytes are no asynchronous ones to products
    begin_groups();
    const std::uint64_t in_stage = stage * (S::kStageBytes >> 4);
#pragma unroll
    for (int k = 0; k < S::kDepth / 16; ++k) {
      const std::uint64_t at = in_stage + k / 4 * (S::kPlane >> 4) + k % 4 * 2;
      multiply_lanes<T, S::kWide>(sum, at_first + at, at_second + at, step > 0 || k > 0);
    }
    end_groups();
    if (step > 0) {
      await_groups<1>();
      if (threadIdx.x % 32 == 0) {
        arrive(before);
      }
    }
    before = read + stage * 8;
    if (++stage == S::kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
  await_groups<0>();
}

template <typename T, int kTile, bool kGroups, typename W = T>
__global__ void __launch_bounds__(PanelJoinedBlock<kTile>::kThreads,
                                  kPanelShrinkTiles[kTile].blocks)
    panel_joined(const __grid_constant__ ShrinkParams params,
                 const __grid_constant__ PanelShrinkPlanOf<W> plan) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  __trap();  // never launched: no clusters
#else
  using S = PanelJoinedBlock<kTile>;
  constexpr int kRows = S::kRows, kLanes = S::kLanes, kRF = S::kRF, kLF = S::kLF;
  constexpr int kFragments = S::kFragments;
  extern __shared__ __align__(1024) unsigned char shared[];
  const int block = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  const std::uint32_t full = shared_address(shared);
  const std::uint32_t read = full + S::kStages * 8;
  const std::uint32_t joined = read + S::kStages * 8;
  if (thread == 0) {
    for (int stage = 0; stage < S::kStages; ++stage) {
      begin_barrier(full + stage * 8, S::kBring * 32);
      begin_barrier(read + stage * 8, S::kMultiply);
    }
    begin_barrier(joined, 1);
    expect_bytes(joined, kRows * kLanes * 4);
    publish_barriers();
  }
  PanelJoinedTile tile;
  tile.segment = find_panel(params, block / kChains / plan.lane_tiles, kRows);
  if (tile.segment.rows == 0) {  // as all blocks of the cluster
    await_previous_kernel();     // who waits for this kernel waits for that one too
    return;
  }
  const Segment& segment = tile.segment;
  tile.rank = params.rank[segment.adapter];
  tile.first_lane = block / kChains % plan.lane_tiles * kLanes;
  tile.lanes = min(tile.rank * params.slices - tile.first_lane, kLanes);
  if (tile.lanes <= 0) {  // all of them again
    await_previous_kernel();
    return;
  }
  const int own = block % kChains;  // chain, and rank in the cluster
  const auto max_rank = static_cast<int>(params.max_rank);
  tile.first = own * plan.chain;
  tile.end = tile.first + plan.chain;
  tile.steps = (plan.chain + S::kDepth - 1) / S::kDepth;
  auto* tokens = reinterpret_cast<std::int32_t*>(shared + S::kBarriers);
  auto* places = reinterpret_cast<std::int64_t*>(shared + S::kBarriers + kRows * 4);
  for (int i = thread; i < kRows + kLanes; i += S::kThreads) {
    if (i < kRows) {
      tokens[i] = params.token_order[segment.first + min(i, segment.rows - 1)];
    } else {
      const int lane = tile.first_lane + min(i - kRows, tile.lanes - 1);
      places[i - kRows] = (lane / tile.rank) * params.tokens * max_rank + lane % tile.rank;
    }
  }
  __syncthreads();  // barriers and tables
  arrive_in_cluster();
  unsigned char* const stages = shared + S::kTable;
  const std::uint32_t ring = shared_address(stages);
  if (thread >= S::kMultiply * 32) {
    bring_panel<S, T, W>(params, tile, tokens, thread - S::kMultiply * 32, stages, full, read,
                         plan);
    await_cluster();
    return;
  }
  const int warp = thread / 32;
  const int g = thread % 32 / 4;
  const int t = thread % 4;
  const int warp_row = warp % S::kWarpsM * (16 * kRF);
  const int warp_lane = warp / S::kWarpsM * (8 * kLF);
  const int of_warp = thread % 32;
  // Of x 16 rows and 16 elements at a time, of A eight lanes and 32 elements.
  const std::uint32_t x_place =
      ring + (warp_row + of_warp % 16) * S::kPitch + (((of_warp / 16) ^ (of_warp % 8)) * 16);
  const std::uint32_t a_place =
      ring + (kRows + warp_lane + of_warp % 8) * S::kPitch + (((of_warp / 8) ^ (of_warp % 8)) * 16);
  float sum[kRF][kLF][4] = {};
  const auto load = [&](PanelOperands<S>& to, int stage_offset, int b) {
    // Blocks of 32 elements differ in bit 6 of a place, halves of one in bit 5.
    const std::uint32_t xs = (x_place ^ (b % 2 * 64)) + stage_offset + b / 2 * S::kPlane;
    const std::uint32_t as = (a_place ^ (b % 2 * 64)) + stage_offset + b / 2 * S::kPlane;
#pragma unroll
    for (int i = 0; i < kRF; ++i) {
      to.x[i][0] = load_matrices(xs + i * 16 * S::kPitch);
      to.x[i][1] = load_matrices((xs ^ 32) + i * 16 * S::kPitch);
    }
#pragma unroll
    for (int j = 0; j < kLF; ++j) {
      to.a[j] = load_matrices(as + j * 8 * S::kPitch);
    }
  };
  const auto multiply = [&](const PanelOperands<S>& of) {
#pragma unroll
    for (int i = 0; i < kRF; ++i) {
      const uint4& low = of.x[i][0];
      const uint4& high = of.x[i][1];
#pragma unroll
      for (int j = 0; j < kLF; ++j) {
        multiply_16<T>(sum[i][j], low.x, low.y, low.z, low.w, of.a[j].x, of.a[j].y);
      }
#pragma unroll
      for (int j = 0; j < kLF; ++j) {
        multiply_16<T>(sum[i][j], high.x, high.y, high.z, high.w, of.a[j].z, of.a[j].w);
      }
    }
  };
  if constexpr (kGroups) {
    const std::uint32_t x_rows = ring;
    const std::uint32_t lanes = ring + (kRows + (S::kLanesFirst ? 0 : warp_lane)) * S::kPitch;
    multiply_joined<T, S>(reinterpret_cast<float(&)[S::kWide / 2]>(sum[0]),
                          S::kLanesFirst ? lanes : x_rows, S::kLanesFirst ? x_rows : lanes,
                          tile.steps, full, read);
  }
  int stage = 0;
  int stage_offset = 0;
  unsigned parity = 0;
  PanelOperands<S> operands[2];
  if constexpr (!kGroups) {
    await_phase(full, 0);
    load(operands[0], 0, 0);
  }
#pragma unroll 1
  for (int step = 0; step < (kGroups ? 0 : tile.steps); ++step) {
    // No branch but the wait: where one ends, products have to. So warps without rows or lanes
    // multiply what they find, and stages are multiplied whole, zeros where the chain has ended.
    constexpr int kBlocks = S::kDepth / 32;
    const int offset = stage_offset;
    const std::uint32_t read_now = read + stage * 8;
    if (++stage == S::kStages) {
      stage = 0;
      parity ^= 1;
      stage_offset = 0;
    } else {
      stage_offset += S::kStageBytes;
    }
#pragma unroll
    for (int b = 0; b + 1 < kBlocks; ++b) {
      load(operands[(b + 1) % 2], offset, b + 1);
      multiply(operands[b % 2]);
    }
    // After the last stage, once more what has come.
    const bool more = step + 1 < tile.steps;
    const int next = more ? stage : (stage == 0 ? S::kStages : stage) - 1;
    const unsigned next_parity = more || stage != 0 ? parity : parity ^ 1;
    __syncwarp();  // all of this stage is in registers
    if (thread % 32 == 0) {
      arrive(read_now);
    }
    await_phase(full + next * 8, next_parity);
    load(operands[0], more ? stage_offset : offset, 0);
    multiply(operands[(kBlocks - 1) % 2]);
  }

  constexpr int kAll = kFragments * S::kMultiply;
  unsigned char* received = shared + S::kTable + S::kRing;
  await_cluster();  // all blocks have their barriers
#pragma unroll
  for (int f = 0; f < kFragments; ++f) {
    const int number = warp * kFragments + f;
    const int owner = number % kChains;
    const int place = ((number / kChains * kChains + own) * 32 + of_warp) * 16;
    const float(&value)[4] = sum[f / kLF][f % kLF];
    send_four(in_block(shared_address(received) + place, owner),
              make_float4(value[0], value[1], value[2], value[3]), in_block(joined, owner));
  }
  if (warp * kChains + own >= kAll) {
    return;  // the first warp stays
  }
  await_phase(joined, 0);
  const auto store_one = [&](int row, int lane, float value) {
    if (row < segment.rows && lane < tile.lanes) {
      plan.sums.sums[tokens[row] * std::int64_t{max_rank} + places[lane]] = value;
    }
  };
  const bool pairs = tile.rank % 2 == 0 && max_rank % 2 == 0;
  const auto store_two = [&](int row, int lane, float first, float second) {
    if (row < segment.rows && lane < tile.lanes) {
      float* of_row = plan.sums.sums + tokens[row] * std::int64_t{max_rank};
      if (pairs) {
        *reinterpret_cast<float2*>(of_row + places[lane]) = {first, second};
      } else {
        of_row[places[lane]] = first;
        if (lane + 1 < tile.lanes) {
          of_row[places[lane + 1]] = second;
        }
      }
    }
  };
#pragma unroll 1
  for (int number = warp * kChains + own; number < kAll; number += S::kMultiply * kChains) {
    const auto* of =
        reinterpret_cast<const float4*>(received) + number / kChains * kChains * 32 + of_warp;
    float4 part[kChains];
#pragma unroll
    for (int i = 0; i < kChains; ++i) {
      part[i] = of[i * 32];
    }
    const float4 h = add_in_pairs(part);
    const int warp_of = number / kFragments;
    const int f = number % kFragments;
    if constexpr (kGroups && S::kLanesFirst) {
      const int lane = warp_of * 16 + g;
      const int row = f * 8 + t * 2;
      store_one(row, lane, h.x);
      store_one(row + 1, lane, h.y);
      store_one(row, lane + 8, h.z);
      store_one(row + 1, lane + 8, h.w);
      continue;
    }
    const int row = warp_of % S::kWarpsM * (16 * kRF) + f / kLF * 16 + g;
    const int lane = warp_of / S::kWarpsM * (8 * kLF) + f % kLF * 8 + t * 2;
    store_two(row, lane, h.x, h.y);
    store_two(row + 8, lane, h.z, h.w);
  }
#endif
}

}  // namespace lora_bench::kernels
