#pragma once

#include "kernels/asynchronous.cuh"
#include "kernels/chains.h"
#include "kernels/link.cuh"
#include "kernels/panel/panel_codes.cuh"
#include "kernels/panel/panel_columns.cuh"
#include "kernels/panel/panel_eight.cuh"
#include "kernels/panel/panel_groups.cuh"
#include "kernels/panel/panel_hidden.cuh"
#include "kernels/panel/panel_plan.h"
#include "kernels/panel/panel_rows.cuh"
#include "kernels/panel/panel_tuning.h"
#include "kernels/segment/fragments.cuh"
#include "kernels/segment/vectors.cuh"

// expand of a panel.
//   grid      (row tiles) x (chunks of column tiles), the last fastest; full row tiles first
//   block     16 rows a warp, all columns of a tile shared by the warps of a row; walks over the
//             column tiles of its chunk. Of ranks above 128 a share of the warps has some of the
//             lanes, each a tile behind the share before it, whose sums it goes on with
//   memory    a ring of stages: B of a column tile, for the products; y of a warp, for itself.
//             h of a slice: added up, scaled, in shared memory once, then in registers as what the
//             tensor cores multiply
//   barriers  one a stage: B has come, what is filled next has been read by all, and sums have been
//             handed over; one a slice: h
//   order     rank ascending, 16 lanes at a time; an fp32 h in three parts, the lowest first
//   products  mma.sync, or on sm_90a by groups of four warps (wgmma), which gives the same bits
//   y         read and written along rows, in whole runs of 128 bytes and more; what is read is
//             asked for stages ahead, before shrink has ended
//   bytes     y twice, B once a row tile, the parts of h once a chunk
//   bound     memory; above rank 64 instructions and latency of few warps
namespace lora_bench::kernels {

template <int kTile>
struct PanelExpandBlock {
  static constexpr PanelExpandTile kShape = kPanelExpandTiles[kTile];
  static constexpr int kSteps = kShape.steps;
  static constexpr int kWarpsM = kShape.warps_of_rows;
  static constexpr int kWide = kShape.wide;
  static constexpr int kStages = kShape.stages;
  static constexpr int kShares = kShape.shares;
  static constexpr int kOwnSteps = kSteps / kShares;  // of a share of the warps
  static constexpr int kWarpsOfShare = kWarpsM * kShape.warps_of_columns;
  static constexpr int kThreads = 32 * kWarpsOfShare * kShares;
  static constexpr int kRows = 16 * kWarpsM;
  static constexpr int kColumns = kWide * kShape.warps_of_columns;
  static constexpr int kRowBytes = kSteps * 32;  // of B
  static constexpr int kBytesOfB = kColumns * kRowBytes;
  static constexpr int kWarpBytesOfY = 16 * kWide * 2;
  static constexpr int kStageBytes = kBytesOfB + kRows * kColumns * 2;
  static constexpr int kTable = (kRows * 12 + 1023) / 1024 * 1024;
  static constexpr int kRing = kStages * kStageBytes;
  static constexpr int kPitchOfH = panel_pitch_of_h(kSteps);
  static constexpr int kHeld = kTable + kRing;  // h of a slice, then sums from share to share
  static constexpr int kThreadsOfShare = kThreads / kShares;
  static_assert(kSteps % kShares == 0 && kStages > 1);
  static_assert(kSteps < 4 || kSteps % 4 == 0);  // B lies in pieces of 64 lanes
};

template <typename T, typename H, int kTile, bool kGroups, typename W = T>
__global__ void __launch_bounds__(PanelExpandBlock<kTile>::kThreads,
                                  kPanelExpandTiles[kTile].blocks)
    panel_expand(const __grid_constant__ ExpandParams params,
                 const __grid_constant__ PanelExpandPlanOf<W> plan) {
  using S = PanelExpandBlock<kTile>;
  constexpr int kSteps = S::kSteps, kWide = S::kWide, kStages = S::kStages;
  constexpr int kThreads = S::kThreads, kColumns = S::kColumns;
  constexpr int kShares = S::kShares, kOwnSteps = S::kOwnSteps;
  constexpr bool kMeanwhile = kGroups && kSteps >= 4;  // copies are asked for while products run
  static_assert(!kGroups || S::kWarpsM % 4 == 0);
  extern __shared__ __align__(1024) unsigned char shared[];
  const int block = static_cast<int>(blockIdx.x);
  const Segment segment = find_panel(params, block / plan.chunks, S::kRows);
  const int rank = segment.rows > 0 ? params.rank[segment.adapter] : 0;
  if (rank == 0) {
    return;
  }
  const int thread = static_cast<int>(threadIdx.x);
  auto** y_rows = reinterpret_cast<char**>(shared);
  auto* tokens = reinterpret_cast<std::int32_t*>(shared + S::kRows * 8);
  unsigned char* held = shared + S::kHeld;
  for (int row = thread; row < segment.rows; row += kThreads) {
    tokens[row] = params.token_order[segment.first + row];
    y_rows[row] = static_cast<char*>(params.y) + tokens[row] * (params.y_stride * 2);
  }
  const int share = kShares == 1 ? 0 : thread / 32 / S::kWarpsOfShare;
  const int warp = thread / 32 - share * S::kWarpsOfShare;  // of its share
  const int lane = thread % 32;
  const int g = lane / 4;
  const int t = lane % 4;
  const int chunk = block % plan.chunks;
  const int first_tile = static_cast<int>(std::int64_t{plan.tiles} * chunk / plan.chunks);
  const int turns =
      static_cast<int>(std::int64_t{plan.tiles} * (chunk + 1) / plan.chunks) - first_tile;
  const int warp_row = warp % S::kWarpsM * 16;
  const int warp_column = warp / S::kWarpsM * kWide;
  const int rows = min(segment.rows - warp_row, 16);  // of this warp; may be negative
  // Two walks over the column tiles: what is brought, and what is worked on.
  PanelColumns ahead;
  ahead.begin(params, first_tile, kColumns);
  PanelColumns now = ahead;
  const std::uint32_t ring = shared_address(shared) + S::kTable;
  const auto max_rank = static_cast<int>(params.max_rank);
  // Copies of B: a vector of the lanes of a share, of every so many columns.
  constexpr int kVectors = kSteps * 2;
  constexpr int kOwnVectors = kOwnSteps * 2;
  constexpr int kColumnsATime = S::kThreadsOfShare / kOwnVectors;
  constexpr int kCopies = (kColumns + kColumnsATime - 1) / kColumnsATime;
  constexpr bool kEven = S::kThreadsOfShare % kOwnVectors == 0 && kColumns % kColumnsATime == 0;
  const int thread_of_share = thread - share * S::kThreadsOfShare;
  const int own_column = thread_of_share / kOwnVectors;
  const int own_vector = share * kOwnVectors + thread_of_share % kOwnVectors;
  const int own_bytes = min(max((rank - own_vector * 8) * 2, 0), 16);
  constexpr bool kEight = kOfEightBits<W>;
  constexpr int kBytes = static_cast<int>(sizeof(W));
  static_assert(!kEight || kShares == 1);
  const bool whole = kEight || max_rank % 8 == 0;  // else columns begin on 8 bytes
  const int vector_offset = own_bytes > 0 ? own_vector * (8 * kBytes) : 0;
  const std::int64_t column_bytes = max_rank * kBytes;
  const auto b_of = [&](const PanelColumns& at) {
    return static_cast<const char*>(params.b[at.slice < params.slices ? at.slice : 0]) +
           (segment.adapter * at.width + at.column + own_column) * column_bytes + vector_offset;
  };
  // Copies of y: 16 bytes of kRowsATime rows of the warp.
  constexpr int kLanesOfRow = kWide / 8;
  constexpr int kRowsATime = 32 / kLanesOfRow;
  const int y_row = lane / kLanesOfRow;
  const int y_chunk = lane % kLanesOfRow;
  const std::uint32_t y_ring = ring + S::kBytesOfB + warp * S::kWarpBytesOfY;
  const auto y_place = [&](int row, int at) {
    return row * (kWide * 2) + ((at ^ (row % 2 * 4)) * 16);
  };
  __syncthreads();  // the table

  // Where 16 bytes of a column of B lie: as the products expect them, in different banks.
  const auto place_of_b = [](int place, int vector) {
    if constexpr (kGroups) {
      constexpr int kRow = kSteps >= 4 ? 8 : kVectors;  // vectors
      const int swizzle = kSteps >= 4 ? place % 8 : kSteps == 2 ? place / 2 % 4 : place / 4 % 2;
      return (vector / kRow * kColumns + place) * (kRow * 16) + ((vector % kRow) ^ swizzle) * 16;
    } else {
      const int swizzle = place / (kSteps >= 4 ? 1 : 4 / kSteps) % (kSteps >= 4 ? 4 : kSteps);
      return place * S::kRowBytes + ((vector / 2) ^ swizzle) * 32 + vector % 2 * 16;
    }
  };
  // Of the columns of a tile that this thread copies, one of `kCopies`.
  const auto has_column = [&](const PanelColumns& at, int i) {
    const int column = own_column + i * kColumnsATime;
    return (kEven || (own_column < kColumnsATime && column < kColumns)) &&
           at.column + column < at.width;
  };
  const auto place_of_column = [&](int i) {
    const int column = own_column + i * kColumnsATime;
    // Fragment column i of tile j is column 8 * (i / 2) + 2 * j + i % 2 of 32.
    const int place = column / 32 * 32 + column % 8 / 2 * 8 + column % 32 / 8 * 2 + column % 2;
    return place_of_b(place, own_vector);
  };
  const char* b = b_of(ahead);
  int brought = 0;
  int bring_offset = 0;
  const auto bring = [&]() {
    if (brought < turns) {
      const auto bring_column = [&](int i, const auto& copy) {
        if (has_column(ahead, i)) {
          copy(ring + bring_offset + place_of_column(i), b + i * kColumnsATime * column_bytes);
        }
      };
      if (whole) {
#pragma unroll
        for (int i = 0; i < kCopies; ++i) {
          bring_column(
              i, [&](std::uint32_t to, const char* from) { copy_weights<W>(to, from, own_bytes); });
        }
      } else {
#pragma unroll 1
        for (int i = 0; i < kCopies; ++i) {
          bring_column(i, [&](std::uint32_t to, const char* from) {
            copy_eight(to, from, min(own_bytes, 8));
            copy_eight(to + 8, own_bytes > 8 ? from + 8 : from, max(own_bytes - 8, 0));
          });
        }
      }
      if (share + 1 == kShares && params.add_inputs &&
          ahead.column + warp_column + y_chunk * 8 < ahead.width) {
        const std::int64_t offset =
            (ahead.slice_start + ahead.column + warp_column + y_chunk * 8) * 2;
#pragma unroll
        for (int i = 0; i < 16 / kRowsATime; ++i) {
          const int row = y_row + i * kRowsATime;
          if (row < rows) {
            copy_sixteen(y_ring + bring_offset + y_place(row, y_chunk),
                         y_rows[warp_row + row] + offset);
          }
        }
      }
      ++brought;
      b += kColumns * column_bytes;
      if (ahead.step_on(params, kColumns)) {
        b = b_of(ahead);
      }
      bring_offset = bring_offset + S::kStageBytes == S::kRing ? 0 : bring_offset + S::kStageBytes;
    }
    close_copies();
  };
#pragma unroll 1
  for (int i = 0; i < kStages - 1; ++i) {
    bring();
  }
  const float scale = params.scale == nullptr ? 1.0F : params.scale[segment.adapter];
  const float shrink_scale = plan.sums.scale == nullptr ? 1.0F : plan.sums.scale[segment.adapter];
  await_previous_kernel();
  let_next_kernel_start();

  HiddenFragment<T, H> hidden[kGroups ? 1 : kOwnSteps];
  constexpr int kNumbers = kNumbersOfH<H>;
  std::uint32_t of_group[kGroups ? kOwnSteps : 1][kNumbers][4];
  const bool active = kGroups ? warp % S::kWarpsM / 4 * 64 < segment.rows : rows > 0;
  const int first_step = share * kOwnSteps;
  const T* bias = nullptr;
  const auto take_hidden = [&]() {  // of the slice that this share is at
    bias = static_cast<const T*>(params.bias[now.slice]);
    if (bias != nullptr) {
      bias += segment.adapter * now.width;
    }
    const unsigned char* first_row = held + (warp_row + g) * S::kPitchOfH + first_step * 64;
    if constexpr (kGroups) {
#pragma unroll
      for (int s = 0; s < kOwnSteps; ++s) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float2 two = *reinterpret_cast<const float2*>(first_row + i % 2 * 8 * S::kPitchOfH +
                                                              s * 64 + i / 2 * 32 + t * 8);
          std::uint32_t pairs[kNumbers];
          pairs_of_two<H>(two.x, two.y, pairs);
#pragma unroll
          for (int p = 0; p < kNumbers; ++p) {
            of_group[s][p][i] = pairs[p];
          }
        }
      }
    }
#pragma unroll
    for (int s = 0; s < (kGroups ? 0 : kOwnSteps); ++s) {
      const float4 first = *reinterpret_cast<const float4*>(first_row + s * 64 + t * 16);
      const float4 second =
          *reinterpret_cast<const float4*>(first_row + 8 * S::kPitchOfH + s * 64 + t * 16);
      if constexpr (sizeof(H) == sizeof(float)) {
        hidden[s].load(first, second);
      } else {
        hidden[s].load({packed<H>(first.x, first.y), packed<H>(first.z, first.w)},
                       {packed<H>(second.x, second.y), packed<H>(second.z, second.w)});
      }
    }
  };
  int stage_offset = 0;
  const auto multiply = [&](int handed_over) {
    if (!active) {
      return;
    }
    unsigned char* ys = shared + S::kTable + stage_offset + S::kBytesOfB + warp * S::kWarpBytesOfY;
    const unsigned char* bs =
        shared + S::kTable + stage_offset + (warp_column + g) * S::kRowBytes + t * 8;
    const int swizzle = g / (kSteps >= 4 ? 1 : 4 / kSteps) % (kSteps >= 4 ? 4 : kSteps);
    // Between a share and the next, for pieces in turn.
    constexpr int kHandedOver = kWide / 8 * S::kThreadsOfShare;
    auto* handed =
        reinterpret_cast<float4*>(held) + (2 * share + handed_over) * kHandedOver + thread_of_share;
    constexpr int kTogether = kGroups ? 8 : 4;  // times 8 columns
#pragma unroll 1
    for (int c = 0; c < kWide / 8; c += kTogether) {
      ColumnScalesOf<W, kTogether / 4> scales;
      scales.load(plan, now.slice, segment.adapter, now.width,
                  now.column + warp_column + 8 * c + 8 * t);
      float sum[kTogether][4] = {};
      if (kShares > 1 && share > 0) {
#pragma unroll
        for (int j = 0; j < kTogether; ++j) {
          const float4 before = handed[(c + j) * S::kThreadsOfShare - 2 * kHandedOver];
          sum[j][0] = before.x;
          sum[j][1] = before.y;
          sum[j][2] = before.z;
          sum[j][3] = before.w;
        }
      }
      if constexpr (kGroups) {
        constexpr std::uint64_t kRow = kSteps >= 4 ? 128 : kSteps * 32;
        constexpr std::uint64_t kSwizzle = kSteps >= 4 ? 1 : kSteps == 2 ? 2 : 3;
        const std::uint32_t at =
            ring + stage_offset + (warp_column + c * 8) * static_cast<std::uint32_t>(kRow);
        const std::uint64_t place = kSwizzle << 62 | (8 * kRow >> 4) << 32 | 1ULL << 16 | at >> 4;
        const auto lanes_at = [](int s) { return (s / 4 * kColumns * 128 + s % 4 * 32) / 16; };
        begin_groups();
#pragma unroll
        for (int s = 0; s < kOwnSteps; ++s) {
          const int lanes = kOwnSteps % 4 == 0 ? share * lanes_at(kOwnSteps) + lanes_at(s)
                                               : lanes_at(share * kOwnSteps + s);
#pragma unroll
          for (int p = kNumbers - 1; p >= 0; --p) {
            multiply_group(sum, of_group[s][p], place + lanes,
                           s > 0 || p + 1 < kNumbers || share > 0);
          }
        }
        end_groups();
        if (kMeanwhile && c == 0) {
          bring();
        }
        await_groups<0>();
      }
#pragma unroll
      for (int s = 0; s < (kGroups ? 0 : kOwnSteps); ++s) {
#pragma unroll
        for (int j = 0; j < kTogether; ++j) {
          hidden[s].multiply(sum[j],
                             *reinterpret_cast<const uint2*>(bs + (c + j) * 8 * S::kRowBytes +
                                                             ((first_step + s) ^ swizzle) * 32));
        }
      }
      if (kShares > 1 && share + 1 < kShares) {
#pragma unroll
        for (int j = 0; j < kTogether; ++j) {
          handed[(c + j) * S::kThreadsOfShare] = {sum[j][0], sum[j][1], sum[j][2], sum[j][3]};
        }
        continue;
      }
#pragma unroll
      for (int d = 0; d < kTogether / 4; ++d) {
        float of_bias[8];
        if (bias != nullptr) {
          const int column = now.column + warp_column + 8 * c + 32 * d + 8 * t;
          unpack<T>(
              column < now.width ? __ldg(reinterpret_cast<const uint4*>(bias + column)) : uint4{},
              of_bias);
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          auto* place = reinterpret_cast<uint4*>(ys + y_place(g + 8 * i, c + 4 * d + t));
          *place = finish_eight<T>(
              scale_of_row(params, scale, segment, tokens, warp_row + g + 8 * i), bias != nullptr,
              of_bias, params.add_inputs,
              [&](int e) { return scales(d, e, sum[d * 4 + e / 2][i % 2 * 2 + e % 2]); },
              [&] { return *place; });
        }
      }
    }
    __syncwarp();  // sums of all columns of a row
    if (share + 1 == kShares && now.column + warp_column + y_chunk * 8 < now.width) {
      const std::int64_t offset = (now.slice_start + now.column + warp_column + y_chunk * 8) * 2;
#pragma unroll
      for (int i = 0; i < 16 / kRowsATime; ++i) {
        const int row = y_row + i * kRowsATime;
        if (row < rows) {
          *reinterpret_cast<uint4*>(y_rows[warp_row + row] + offset) =
              *reinterpret_cast<const uint4*>(ys + y_place(row, y_chunk));
        }
      }
    }
  };
  // Slice by slice, the pieces of a slice in turn: each share is a turn behind the one with the
  // lanes below its own, whose sums it goes on with.
#pragma unroll 1
  for (int done = 0; done < turns;) {
    const int pieces = min((now.width - now.column + kColumns - 1) / kColumns, turns - done);
    if (kShares > 1 && done > 0) {
      __syncthreads();  // h takes the place of sums that were handed over
    }
    hold_hidden<S, H>(params, plan.sums, segment, tokens, now.slice, rank, shrink_scale,
                      scales_of_lanes(plan, now.slice, segment.adapter, max_rank), held);
    __syncthreads();  // h of this slice is complete
    take_hidden();
#pragma unroll 1
    for (int turn = 0; turn < pieces + kShares - 1; ++turn) {
      const bool works = kShares == 1 || (turn >= share && turn - share < pieces);
      if (works) {
        await_copies<kStages - 2>();
        if constexpr (kEight) {
          unsigned char* const bs = shared + S::kTable + stage_offset;
          static_assert(kEven);
          widen_in_place<T, kCopies>(plan.scales.e5m2,
                                     [&](int i) { return bs + place_of_column(i); });
        }
        if constexpr (kGroups) {  // the copies of this thread, before other threads multiply them
          show_to_groups();
        }
      }
      __syncthreads();
      if (works) {
        if (!kMeanwhile || !active) {
          bring();
        }
        multiply((turn - share) % 2);
        stage_offset =
            stage_offset + S::kStageBytes == S::kRing ? 0 : stage_offset + S::kStageBytes;
        now.step_on(params, kColumns);
      }
    }
    done += pieces;
  }
}

}  // namespace lora_bench::kernels
