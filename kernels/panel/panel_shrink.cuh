#pragma once

#include "kernels/asynchronous.cuh"
#include "kernels/chains.h"
#include "kernels/link.cuh"
#include "kernels/panel/panel_plan.h"
#include "kernels/panel/panel_rows.cuh"
#include "kernels/panel/panel_tuning.h"
#include "kernels/segment/fragments.cuh"
#include "kernels/segment/matrices.cuh"

// shrink of a panel.
//   grid      (row tiles) x (blocks that share the chains) x (lane tiles), the last fastest: they
//             share x in the L2; full row tiles first
//   block     a tile of rows of one adapter times lanes of all slices, shared by its warps; chains
//             one after another
//   memory    a ring of stages of 64 elements of K of all rows and lanes, 128 bytes each. Chunk c
//             (16 bytes) of row r lies at c ^ (r % 8), so that eight rows lie in different banks
//   barriers  one a stage: what it holds has come, and what is filled next has been read by all
//   order     a chain is one sum on the tensor cores, 16 elements at a time; chains in pairs, by
//             this block as far as it has room for what waits, the rest by who reads the parts
//   start     the plan and the ranks are read while the kernel before this one ends
//   bytes     x once a lane tile, A once a row tile, all but the first from the L2
//   bound     memory, L2 where lanes are many
namespace lora_bench::kernels {

template <int kTile>
struct PanelShrinkBlock {
  static constexpr PanelShrinkTile kShape = kPanelShrinkTiles[kTile];
  static constexpr int kRows = kShape.rows;
  static constexpr int kLanes = kShape.lanes;
  static constexpr int kWarpsM = kShape.warps_of_rows;
  static constexpr int kWarpsN = kShape.warps_of_lanes;
  static constexpr int kStages = kShape.stages;
  static constexpr int kThreads = 32 * kWarpsM * kWarpsN;
  static constexpr int kRowFragments = kRows / kWarpsM / 16;
  static constexpr int kLaneFragments = kLanes / kWarpsN / 8;
  static constexpr int kFragments = kRowFragments * kLaneFragments;
  static constexpr int kTable = panel_table_bytes(kShape);
  static constexpr int kStageBytes = (kRows + kLanes) * kPanelDepth * 2;
  static constexpr int kRing = kStages * kStageBytes;
  static_assert(kRows % (16 * kWarpsM) == 0 && kLanes % (8 * kWarpsN) == 0);
};

template <typename T, int kTile>
__global__ void __launch_bounds__(PanelShrinkBlock<kTile>::kThreads,
                                  kPanelShrinkTiles[kTile].blocks)
    panel_shrink(const __grid_constant__ ShrinkParams params,
                 const __grid_constant__ PanelShrinkPlan plan) {
  using S = PanelShrinkBlock<kTile>;
  constexpr int kRows = S::kRows, kLanes = S::kLanes, kDepth = kPanelDepth;
  constexpr int kStages = S::kStages, kThreads = S::kThreads;
  constexpr int kRF = S::kRowFragments, kLF = S::kLaneFragments;
  constexpr int kChunks = kDepth / 8;
  constexpr int kPitch = kDepth * 2;
  extern __shared__ __align__(1024) unsigned char shared[];
  const int block = static_cast<int>(blockIdx.x);
  const int lane_tile = block % plan.lane_tiles;
  const int part = block / plan.lane_tiles % plan.split;
  const Segment segment = find_panel(params, block / plan.split / plan.lane_tiles, kRows);
  if (segment.rows == 0) {
    await_previous_kernel();  // who waits for this kernel waits for that one too
    return;
  }
  const int thread = static_cast<int>(threadIdx.x);
  // Copies: chunk thread % kChunks of rows thread / kChunks, and so on; rows of x, then lanes of A.
  constexpr int kRowsATime = kThreads / kChunks;
  constexpr int kCopies = (kRows + kLanes + kRowsATime - 1) / kRowsATime;
  constexpr int kCopiesOfX = kRows / kRowsATime;
  static_assert(kRows % kRowsATime == 0 && kThreads % kChunks == 0 && kRowsATime % 8 == 0);
  const int own_row = thread / kChunks;
  const int own_chunk = thread % kChunks;
  const char* from[kCopies];
  const int last_row = segment.rows - 1;
#pragma unroll
  for (int i = 0; i < kCopiesOfX; ++i) {
    const int token = row_of_x(
        params, params.token_order[segment.first + min(own_row + i * kRowsATime, last_row)]);
    from[i] = static_cast<const char*>(params.x) + token * (params.x_stride * 2) + own_chunk * 16;
  }
  const int rank = params.rank[segment.adapter];
  const auto max_rank = static_cast<int>(params.max_rank);
  const int first_lane = lane_tile * kLanes;
  const int lanes = min(rank * params.slices - first_lane, kLanes);
  if (lanes <= 0) {
    await_previous_kernel();
    return;
  }
  auto* tokens = reinterpret_cast<std::int32_t*>(shared);
  auto* places = reinterpret_cast<std::int64_t*>(shared + kRows * 4);
  for (int i = thread; i < kRows + kLanes; i += kThreads) {
    if (i < kRows) {
      tokens[i] = params.token_order[segment.first + min(i, last_row)];
    } else {
      const int lane = first_lane + min(i - kRows, lanes - 1);
      places[i - kRows] = (lane / rank) * params.tokens * max_rank + lane % rank;
    }
  }
#pragma unroll
  for (int i = kCopiesOfX; i < kCopies; ++i) {
    const int lane = first_lane + min(own_row + i * kRowsATime - kRows, lanes - 1);
    const int slice = lane / rank;
    from[i] = static_cast<const char*>(params.a[slice]) +
              (segment.adapter * max_rank + (lane - slice * rank)) * (params.in_features * 2) +
              own_chunk * 16;
  }
  const auto in_features = static_cast<int>(params.in_features);
  const int length = plan.chain;
  const int chains = kChains / plan.split;
  const int first_chain = part * chains;
  const int steps = chains * ((length + kDepth - 1) / kDepth);
  const std::uint32_t ring = shared_address(shared) + S::kTable;

  const std::uint32_t own_place = ring + own_row * kPitch + ((own_chunk ^ (own_row % 8)) * 16);
  int bring_at = first_chain * length;  // the first element of the next step
  int bring_end = bring_at + length;
  int bring_offset = 0;
  int brought = 0;
  const auto bring = [&]() {
    if (brought < steps) {
      const std::uint32_t place = own_place + bring_offset;
      const std::int64_t offset = std::int64_t{bring_at} * 2;
      const int end = min(bring_end, in_features);
      if (bring_at + kDepth <= end) {
#pragma unroll
        for (int i = 0; i < kCopies; ++i) {
          const int there =
              i < kCopiesOfX ? segment.rows - i * kRowsATime : lanes + kRows - i * kRowsATime;
          if (i == 0 || there > 0) {
            if (i + 1 < kCopies || (kRows + kLanes) % kRowsATime == 0 ||
                own_row + i * kRowsATime < kRows + kLanes) {
              copy_sixteen(place + i * kRowsATime * kPitch, from[i] + offset);
            }
          }
        }
      } else {
        const int bytes = bring_at + own_chunk * 8 < end ? 16 : 0;
#pragma unroll
        for (int i = 0; i < kCopies; ++i) {
          if (own_row + i * kRowsATime < kRows + kLanes) {
            copy_sixteen(place + i * kRowsATime * kPitch, bytes != 0 ? from[i] + offset : from[i],
                         bytes);
          }
        }
      }
      ++brought;
      bring_at += kDepth;
      if (bring_at >= bring_end) {
        bring_at = bring_end;
        bring_end += length;
      }
      bring_offset = bring_offset + S::kStageBytes == S::kRing ? 0 : bring_offset + S::kStageBytes;
    }
    close_copies();
  };
  await_previous_kernel();
  let_next_kernel_start();
#pragma unroll 1
  for (int i = 0; i < kStages - 1; ++i) {
    bring();
  }
  const int warp = thread / 32;
  const int g = thread % 32 / 4;
  const int t = thread % 4;
  const int warp_row = warp % S::kWarpsM * (16 * kRF);
  const int warp_lane = warp / S::kWarpsM * (8 * kLF);
  const bool idle = warp_row >= segment.rows || warp_lane >= lanes;
  // Of x 16 rows and 16 elements at a time, of A eight lanes and 32 elements.
  const int own = thread % 32;
  const std::uint32_t x_place =
      ring + (warp_row + own % 16) * kPitch + (((own / 16) ^ (own % 8)) * 16);
  const std::uint32_t a_place =
      ring + (kRows + warp_lane + own % 8) * kPitch + (((own / 8) ^ (own % 8)) * 16);
  float sum[kRF][kLF][4] = {};
  auto* kept = reinterpret_cast<float4*>(shared + S::kTable + S::kRing) + thread;
  const auto multiply_block = [&](int stage_offset, int b) {
    // Blocks of 32 elements differ in bit 6 of a place, halves of one in bit 5.
    const std::uint32_t xs = (x_place ^ (b * 64)) + stage_offset;
    const std::uint32_t as = (a_place ^ (b * 64)) + stage_offset;
    uint4 a[kLF];
#pragma unroll
    for (int j = 0; j < kLF; ++j) {
      a[j] = load_matrices(as + j * 8 * kPitch);
    }
#pragma unroll
    for (int i = 0; i < kRF; ++i) {
      const uint4 low = load_matrices(xs + i * 16 * kPitch);
      const uint4 high = load_matrices((xs ^ 32) + i * 16 * kPitch);
#pragma unroll
      for (int j = 0; j < kLF; ++j) {
        multiply_16<T>(sum[i][j], low.x, low.y, low.z, low.w, a[j].x, a[j].y);
      }
#pragma unroll
      for (int j = 0; j < kLF; ++j) {
        multiply_16<T>(sum[i][j], high.x, high.y, high.z, high.w, a[j].z, a[j].w);
      }
    }
  };
  const bool pairs = rank % 2 == 0 && max_rank % 2 == 0;
  const auto store = [&](int number) {  // the sums as a part
    float* to = plan.sums.sums + number * plan.sums.elements;
#pragma unroll
    for (int i = 0; i < kRF; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = warp_row + i * 16 + g + 8 * half;
        if (row >= segment.rows) {
          continue;
        }
        float* of_row = to + tokens[row] * std::int64_t{max_rank};
#pragma unroll
        for (int j = 0; j < kLF; ++j) {
          const int lane = warp_lane + j * 8 + t * 2;
          if (lane < lanes) {
            if (pairs) {
              *reinterpret_cast<float2*>(of_row + places[lane]) = {sum[i][j][2 * half],
                                                                   sum[i][j][2 * half + 1]};
            } else {
              of_row[places[lane]] = sum[i][j][2 * half];
              if (lane + 1 < lanes) {
                of_row[places[lane + 1]] = sum[i][j][2 * half + 1];
              }
            }
          }
        }
      }
    }
  };
  int stage_offset = 0;
  int at = first_chain * length;
  int chain_end = at + length;
  int chain = 0;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    await_copies<kStages - 2>();
    __syncthreads();
    bring();
    if (!idle) {
      const int left = min(chain_end, in_features) - at;
      if (left >= kDepth) {
#pragma unroll
        for (int b = 0; b < kDepth / 32; ++b) {
          multiply_block(stage_offset, b);
        }
      } else {
#pragma unroll 1
        for (int b = 0; b * 32 < left; ++b) {
          multiply_block(stage_offset, b);
        }
      }
    }
    stage_offset = stage_offset + S::kStageBytes == S::kRing ? 0 : stage_offset + S::kStageBytes;
    at += kDepth;
    if (at < chain_end) {
      continue;
    }
    at = chain_end;
    chain_end += length;
    // With the runs of chains before it that are as long as what it ends.
    int level = 0;
#pragma unroll 1
    for (; level < plan.levels && (chain >> level) % 2 != 0; ++level) {
#pragma unroll
      for (int f = 0; f < S::kFragments; ++f) {
        float* s = sum[f / kLF][f % kLF];
        const float4 before = kept[(level * S::kFragments + f) * kThreads];
        s[0] = before.x + s[0];
        s[1] = before.y + s[1];
        s[2] = before.z + s[2];
        s[3] = before.w + s[3];
      }
    }
    if (level == plan.levels) {
      store((first_chain + chain) >> level);
    } else {
#pragma unroll
      for (int f = 0; f < S::kFragments; ++f) {
        const float* s = sum[f / kLF][f % kLF];
        kept[(level * S::kFragments + f) * kThreads] = {s[0], s[1], s[2], s[3]};
      }
    }
#pragma unroll
    for (int f = 0; f < S::kFragments; ++f) {
      float* s = sum[f / kLF][f % kLF];
      s[0] = s[1] = s[2] = s[3] = 0;
    }
    ++chain;
  }
}

}  // namespace lora_bench::kernels
