#pragma once

#include "kernels/asynchronous.cuh"
#include "kernels/chains.h"
#include "kernels/link.cuh"
#include "kernels/panel/panel_codes.cuh"
#include "kernels/panel/panel_groups.cuh"
#include "kernels/panel/panel_plan.h"
#include "kernels/panel/panel_products.cuh"
#include "kernels/panel/panel_rows.cuh"
#include "kernels/panel/panel_tuning.h"

// shrink of a panel on sm_90a: products of four warps together, operands straight from where copies
// have put them, so no warp loads a fragment.
//   grid      that of panel_shrink: (row tiles) x (blocks that share the chains) x (lane tiles)
//   block     four warps that bring, and four that multiply for every 64 rows of the tile
//   memory    a ring of stages of 64 elements of K, rows of 128 bytes as panel_products.cuh says;
//             tables of rows and lanes
//   barriers  two a stage: what it holds has come; four warps have read it. A stage is given back
//             when the products of the one after it have been asked for
//   registers those of the warps that bring go to the ones that multiply: two chains of 192 lanes
//   order     that of panel_shrink, the same bits: a chain is one sum, 16 elements at a time; a
//   part
//             is a pair of chains, both in registers
//   bytes     those of panel_shrink
//   bound     copies from the L2 and products one after the other: together they take nearly the
//             sum of what they take alone
namespace lora_bench::kernels {

template <int kTile, typename W>
struct PanelGroupedBlock {
  static constexpr PanelShrinkTile kShape = kPanelShrinkTiles[kTile];
  static constexpr int kRows = kShape.rows;
  static constexpr int kLanes = kShape.lanes;
  static constexpr int kStages = kShape.stages;
  static constexpr int kGroups = kRows / 64;  // of four warps that multiply
  static constexpr int kBring = 32 * panel_warps_that_bring(kShape, kOfEightBits<W>);  // threads
  static constexpr int kThreads = kGroups * 128 + kBring;
  static constexpr int kBarriers = panel_barrier_bytes(kShape);
  static constexpr int kTable = panel_table_bytes(kShape);
  static constexpr int kBytesOfX = kRows * kPanelDepth * 2;
  static constexpr int kStageBytes = kBytesOfX + kLanes * kPanelDepth * 2;
  static constexpr int kSums = kLanes / 2;  // of a thread
  // What setmaxnreg lets a thread have; 0: as launched, where two chains have room.
  static constexpr int kOfABlock = 65536 / kShape.blocks / kThreads / 8 * 8;
  static constexpr bool kMoved = 2 * kSums + 40 > kOfABlock;
  static constexpr int kLittle = kBring == 128 ? 56 : 40;
  static constexpr int kMuch = (kOfABlock * kThreads - kLittle * kBring) / (128 * kGroups) / 8 * 8;
  static_assert(kRows % 64 == 0 && kLanes % 16 == 0 && kShape.depth == kPanelDepth);
  static_assert(kTable % 1024 == 0);
};

// Where a block is, and what all its warps know.
struct PanelGroupedTile {
  Segment segment;
  int lanes = 0;
  int first_chain = 0;
  int chains = 0;
  int length = 0;  // of a chain
  int steps = 0;   // stages of a chain
};

// Copies of 16 bytes by the warps that bring, `thread` of them: chunk thread % 8 of rows
// thread / 8, and so on; rows of x, then lanes of A. Rows and lanes that are not there hold what
// lies there, and leave the block in no sum of one that is.
template <typename S, typename T, typename W>
__device__ inline void bring_for_groups(const ShrinkParams& params, const PanelGroupedTile& tile,
                                        const std::int32_t* tokens, const char* const* starts,
                                        int thread, unsigned char* stages, std::uint32_t full,
                                        std::uint32_t read, const PanelShrinkPlanOf<W>& plan) {
  constexpr int kRowsATime = S::kBring / 8;
  constexpr int kX = S::kRows / kRowsATime;
  constexpr int kA = S::kLanes / kRowsATime;
  static_assert(kRowsATime % 8 == 0);
  const int own_row = thread / 8;
  const int own_bytes = thread % 8 * 16;
  const char* const xs = static_cast<const char*>(params.x) + own_bytes;
  std::uint32_t from[kX];  // in 16 bytes
#pragma unroll
  for (int i = 0; i < kX; ++i) {
    from[i] = static_cast<std::uint32_t>(row_of_x(params, tokens[own_row + i * kRowsATime])) *
              static_cast<std::uint32_t>(params.x_stride / 8);
  }
  const char* const* const own_starts = starts + own_row;
  const int place_in_stage = own_row * 128 + (own_bytes ^ (own_row % 8 * 16));
  const std::uint32_t own_place = shared_address(stages) + place_in_stage;
  constexpr bool kEight = kOfEightBits<W>;
  constexpr int kHalves = kEight ? 2 : 1;  // bytes of x are so many of A
  StagesToWiden<S::kStages> to_widen;
  const auto widen = [&](int of) {
    if constexpr (kEight) {
      unsigned char* const lanes = stages + of * S::kStageBytes + S::kBytesOfX + place_in_stage;
      widen_in_place<T, kA>(plan.e5m2, [&](int i) { return lanes + i * kRowsATime * 128; });
    }
  };
  const auto in_features = static_cast<int>(params.in_features);
  int stage = 0;
  unsigned parity = 1;  // all stages are free
#pragma unroll 1
  for (int chain = tile.first_chain; chain < tile.first_chain + tile.chains; ++chain) {
    int at = chain * tile.length;
    const int end = min(at + tile.length, in_features);
#pragma unroll 1
    for (int step = 0; step < tile.steps; ++step) {
      await_phase(read + stage * 8, parity);
      const std::uint32_t place = own_place + stage * S::kStageBytes;
      const std::int64_t offset = std::int64_t{at} * 2;
      if (at + kPanelDepth <= end) {
#pragma unroll
        for (int i = 0; i < kX; ++i) {
          if (own_row + i * kRowsATime < tile.segment.rows) {
            copy_sixteen(place + i * kRowsATime * 128, xs + offset + std::uint64_t{from[i]} * 16);
          }
        }
#pragma unroll
        for (int i = 0; i < kA; ++i) {
          if (own_row + i * kRowsATime < tile.lanes) {
            copy_weights<W>(place + S::kBytesOfX + i * kRowsATime * 128,
                            own_starts[i * kRowsATime] + (offset + own_bytes) / kHalves);
          }
        }
      } else {  // zeros where the chain or K has ended
        const int bytes = at + own_bytes / 2 < end ? 16 : 0;
#pragma unroll
        for (int i = 0; i < kX; ++i) {
          copy_sixteen(place + i * kRowsATime * 128,
                       xs + std::uint64_t{from[i]} * 16 + (bytes != 0 ? offset : -own_bytes),
                       bytes);
        }
#pragma unroll
        for (int i = 0; i < kA; ++i) {
          copy_weights<W>(
              place + S::kBytesOfX + i * kRowsATime * 128,
              own_starts[i * kRowsATime] + (bytes != 0 ? offset + own_bytes : 0) / kHalves, bytes);
        }
      }
      if constexpr (kEight) {
        to_widen.add(full, widen);
      } else {
        arrive_with_copies(full + stage * 8);
      }
      at += kPanelDepth;
      if (++stage == S::kStages) {
        stage = 0;
        parity ^= 1;
      }
    }
  }
  if constexpr (kEight) {
    to_widen.end(full, widen);
  }
  await_own_copies();
}

template <typename T, int kTile, typename W = T>
__global__ void __launch_bounds__(PanelGroupedBlock<kTile, W>::kThreads,
                                  kPanelShrinkTiles[kTile].blocks)
    panel_grouped(const __grid_constant__ ShrinkParams params,
                  const __grid_constant__ PanelShrinkPlanOf<W> plan) {
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __trap();  // never launched
#else
  using S = PanelGroupedBlock<kTile, W>;
  constexpr int kRows = S::kRows, kLanes = S::kLanes, kStages = S::kStages, kSums = S::kSums;
  extern __shared__ __align__(1024) unsigned char shared[];
  const int block = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  const std::uint32_t full = shared_address(shared);
  const std::uint32_t read = full + kStages * 8;
  if (thread == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      begin_barrier(full + stage * 8, S::kBring);
      begin_barrier(read + stage * 8, S::kGroups);
    }
    publish_barriers();
  }
  PanelGroupedTile tile;
  tile.segment = find_panel(params, block / plan.split / plan.lane_tiles, kRows);
  const Segment& segment = tile.segment;
  if (segment.rows == 0) {
    await_previous_kernel();  // who waits for this kernel waits for that one too
    return;
  }
  const int rank = params.rank[segment.adapter];
  const auto max_rank = static_cast<int>(params.max_rank);
  const int first_lane = block % plan.lane_tiles * kLanes;
  tile.lanes = min(rank * params.slices - first_lane, kLanes);
  if (tile.lanes <= 0) {
    await_previous_kernel();
    return;
  }
  tile.chains = kChains / plan.split;
  tile.first_chain = block / plan.lane_tiles % plan.split * tile.chains;
  tile.length = plan.chain;
  tile.steps = (plan.chain + kPanelDepth - 1) / kPanelDepth;
  auto* places = reinterpret_cast<std::int64_t*>(shared + S::kBarriers);
  auto* starts = reinterpret_cast<const char**>(places + kLanes);
  auto* tokens = reinterpret_cast<std::int32_t*>(starts + kLanes);
  for (int i = thread; i < kRows + kLanes; i += S::kThreads) {
    if (i < kRows) {
      tokens[i] = params.token_order[segment.first + min(i, segment.rows - 1)];
    } else {
      const int lane = first_lane + min(i - kRows, tile.lanes - 1);
      const int slice = lane / rank;
      places[i - kRows] = slice * params.tokens * max_rank + lane % rank;
      starts[i - kRows] = static_cast<const char*>(params.a[slice]) +
                          (segment.adapter * max_rank + lane % rank) *
                              (params.in_features * static_cast<int>(sizeof(W)));
    }
  }
  __syncthreads();  // barriers and tables
  unsigned char* const stages = shared + S::kTable;
  const std::uint32_t ring = shared_address(stages);
  const int group = __shfl_sync(0xFFFFFFFFU, thread / 128, 0);
  if (group >= S::kGroups) {
    if constexpr (S::kMoved) {
      asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(S::kLittle));
    }
    await_previous_kernel();
    let_next_kernel_start();
    bring_for_groups<S, T, W>(params, tile, tokens, starts, thread - S::kGroups * 128, stages, full,
                              read, plan);
    return;
  }
  if constexpr (S::kMoved) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(S::kMuch));
  }
  await_previous_kernel();
  const int of_group = thread % 128;
  int stage = 0;
  unsigned parity = 0;
  const auto give_back = [&](int number) {
    if (of_group == 0) {
      arrive(read + number * 8);
    }
  };
  const auto go_on = [&]() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  };
  if (group * 64 >= segment.rows) {  // none of its rows is there
    if (of_group != 0) {
      return;  // nothing would keep it from falling a whole ring behind the thread that gives back
    }
#pragma unroll 1
    for (int step = 0; step < tile.chains * tile.steps; ++step) {
      await_phase(full + stage * 8, parity);
      give_back(stage);
      go_on();
    }
    return;
  }
  const std::uint64_t x = rows_of_128(ring + group * 64 * kPanelDepth * 2);
  const std::uint64_t a = rows_of_128(ring + S::kBytesOfX);
  const auto multiply_chain = [&](float(&sum)[kSums]) {  // no branch around products but the wait
    int before = -1;
#pragma unroll 1
    for (int step = 0; step < tile.steps; ++step) {
      await_phase(full + stage * 8, parity);
      show_to_groups();  // copies of 16 bytes are no asynchronous ones to products
      const auto offset = static_cast<std::uint64_t>(stage * (S::kStageBytes / 16));
      begin_groups();
      multiply_lanes<T, kLanes>(sum, x + offset, a + offset, step > 0);
      multiply_lanes<T, kLanes>(sum, x + offset + 2, a + offset + 2, true);
      multiply_lanes<T, kLanes>(sum, x + offset + 4, a + offset + 4, true);
      multiply_lanes<T, kLanes>(sum, x + offset + 6, a + offset + 6, true);
      end_groups();
      await_groups<1>();
      if (before >= 0) {
        give_back(before);
      }
      before = stage;
      go_on();
    }
    await_groups<0>();
    give_back(before);
  };
  const bool pairs = rank % 2 == 0 && max_rank % 2 == 0;
  const auto store = [&](float* part, const float(&sum)[kSums]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = group * 64 + of_group / 32 * 16 + of_group % 32 / 4 + 8 * half;
      if (row >= segment.rows) {
        continue;
      }
      float* of_row = part + tokens[row] * std::int64_t{max_rank};
      // What is asked once for all: a branch for every sum costs more than its products.
      if (pairs) {
#pragma unroll
        for (int j = 0; j < kLanes / 8; ++j) {
          const int lane = j * 8 + of_group % 4 * 2;
          if (lane < tile.lanes) {
            *reinterpret_cast<float2*>(of_row + places[lane]) = {sum[4 * j + 2 * half],
                                                                 sum[4 * j + 2 * half + 1]};
          }
        }
      } else {
#pragma unroll
        for (int j = 0; j < kLanes / 4; ++j) {
          const int lane = j / 2 * 8 + of_group % 4 * 2 + j % 2;
          if (lane < tile.lanes) {
            of_row[places[lane]] = sum[j / 2 * 4 + 2 * half + j % 2];
          }
        }
      }
    }
  };
#pragma unroll 1
  for (int chain = tile.first_chain; chain < tile.first_chain + tile.chains; chain += 2) {
    float first[kSums];
    float sum[kSums];
    multiply_chain(first);
    multiply_chain(sum);
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      sum[i] = first[i] + sum[i];
    }
    store(plan.sums.sums + chain / 2 * plan.sums.elements, sum);
  }
#endif
}

}  // namespace lora_bench::kernels
