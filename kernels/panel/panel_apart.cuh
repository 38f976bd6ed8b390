#pragma once

#include "kernels/asynchronous.cuh"
#include "kernels/link.cuh"
#include "kernels/panel/panel_codes.cuh"
#include "kernels/panel/panel_columns.cuh"
#include "kernels/panel/panel_eight.cuh"
#include "kernels/panel/panel_expand.cuh"
#include "kernels/panel/panel_groups.cuh"
#include "kernels/panel/panel_hidden.cuh"
#include "kernels/panel/panel_plan.h"
#include "kernels/panel/panel_rows.cuh"

// expand of a panel for ranks of 65 to 128, bf16 on sm_90a. Products of four warps
// together want a fence behind copies of 16 bytes, and a fence waits for all that its thread has
// under way: so those that multiply ask for nothing, and others bring.
//   grid      that of panel_expand: (row tiles) x (chunks of column tiles), the last fastest
//   block     four warps that multiply, 16 rows each, and four that bring B and y. Registers go
//   from
//             these to those
//   memory    the ring of panel_expand: B and y of a column tile; h of a slice, added up, then in
//             registers of those that multiply
//   barriers  two a stage: it has come, it has been read; those that multiply meet twice a slice
//   y         a tile is added to in its stage, and leaves along rows while the next one's products
//             run
//   order     that of panel_expand
//   bytes     that of panel_expand
//   bound     memory; the products of four warps
namespace lora_bench::kernels {

template <int kTile>
struct PanelApartBlock {
  static constexpr PanelExpandTile kShape = kPanelExpandTiles[kTile];
  static constexpr int kSteps = kShape.steps;
  static constexpr int kColumns = kShape.wide;
  static constexpr int kStages = kShape.stages;
  static constexpr int kRows = 64;
  static constexpr int kThreads = 128;  // that multiply
  static constexpr int kBring = 128;
  static constexpr int kRowBytes = kSteps * 32;  // of B
  static constexpr int kBytesOfB = kColumns * kRowBytes;
  static constexpr int kWarpBytesOfY = 16 * kColumns * 2;
  static constexpr int kStageBytes = kBytesOfB + 4 * kWarpBytesOfY;
  static constexpr int kTable = 1024;
  static constexpr int kRing = kStages * kStageBytes;
  static constexpr int kPitchOfH = panel_pitch_of_h(kSteps);
  static constexpr int kHeld = kTable + kRing;
  static constexpr int kOfAThread =
      65536 / kShape.blocks / (kThreads + kBring) / 8 * 8;  // registers
  static constexpr int kLittle = 40;
  static constexpr int kMuch = 2 * kOfAThread - kLittle;
  static_assert(panel_expand_block(kShape, 1, true).kind == PanelExpandKind::kApart);
  static_assert(kThreads + kBring == 32 * panel_expand_block(kShape, 1, true).warps);
  static_assert(kShape.warps_of_rows == 4 && kShape.warps_of_columns == 1 && kShape.shares == 1);
  static_assert(kSteps % 4 == 0);  // B lies in pieces of 64 lanes
  static_assert(kRows * 12 + 2 * kStages * 8 <= kTable);
};

// Where 16 bytes of a column of B lie in a stage, as products of four warps expect them.
template <typename S>
__device__ inline int place_of_b(int place, int vector) {
  return (vector / 8 * S::kColumns + place) * 128 + ((vector % 8) ^ (place % 8)) * 16;
}

// Where 16 bytes of a row of y lie, of a warp's 16.
template <typename S>
__device__ inline int place_of_y(int row, int vector) {
  return row * (S::kColumns * 2) + ((vector ^ (row % 2 * 4)) * 16);
}

// By the warps that bring, `thread` of them: B and y of every column tile. Whole tiles take few
// instructions a copy: these warps have only each other to hide them behind.
template <typename S, typename W>
__device__ inline void bring_columns(const ExpandParams& params, PanelColumns at, int turns,
                                     const Segment& segment, int rank, char* const* y_rows,
                                     int thread, unsigned char* stages, std::uint32_t full,
                                     std::uint32_t read, const PanelExpandPlanOf<W>& plan) {
  constexpr bool kEight = kOfEightBits<W>;
  constexpr int kBytes = static_cast<int>(sizeof(W));
  const std::uint32_t ring = shared_address(stages);
  constexpr int kVectors = S::kSteps * 2;  // of a column of B
  constexpr int kColumnsATime = S::kBring / kVectors;
  constexpr int kCopies = S::kColumns / kColumnsATime;
  constexpr int kVectorsOfY = S::kColumns / 8;
  constexpr int kRowsATime = S::kBring / kVectorsOfY;
  constexpr int kCopiesOfY = S::kRows / kRowsATime;
  static_assert(S::kBring % kVectors == 0 && S::kColumns % kColumnsATime == 0);
  static_assert(S::kRows % kRowsATime == 0 && kRowsATime % 2 == 0 && 16 % kRowsATime == 0);
  const auto max_rank = static_cast<int>(params.max_rank);
  const bool whole = kEight || max_rank % 8 == 0;  // else columns begin on 8 bytes
  const int column_bytes = max_rank * kBytes;
  const int own_column = thread / kVectors;
  const int vector = thread % kVectors;
  const int bytes = min(max((rank - vector * 8) * 2, 0), 16);
  // Fragment column i of tile j is column 8 * (i / 2) + 2 * j + i % 2 of 32; 32 columns on all lies
  // a whole run on.
  constexpr int kRuns = kColumnsATime < 32 ? 32 / kColumnsATime : 1;
  constexpr int kRunBytes = kColumnsATime * kRuns * 128;
  std::uint32_t places[kRuns];
#pragma unroll
  for (int i = 0; i < kRuns; ++i) {
    const int column = own_column + i * kColumnsATime;
    const int of_32 = column % 8 / 2 * 8 + column % 32 / 8 * 2 + column % 2;
    places[i] = ring + place_of_b<S>(column / 32 * 32 + of_32, vector);
  }
  const auto place_of = [&](int i) {
    return places[i % kRuns] + static_cast<std::uint32_t>(i / kRuns * kRunBytes);
  };
  const int own_row = thread / kVectorsOfY;
  const int own_y = thread % kVectorsOfY * 8;  // column
  const std::uint32_t place_of_own_y =
      ring + S::kBytesOfB + place_of_y<S>(own_row, thread % kVectorsOfY);
  StagesToWiden<S::kStages> to_widen;
  const auto widen = [&](int of) {
    if constexpr (kEight) {
      unsigned char* const bs = stages + of * S::kStageBytes;
      widen_in_place<__nv_bfloat16, kCopies>(plan.scales.e5m2,
                                             [&](int i) { return bs + (place_of(i) - ring); });
    }
  };
  RingPlace<S::kStages> turn(1);  // the first find their places free
#pragma unroll 1
  for (int done = 0; done < turns; ++done) {
    const std::uint32_t stage = turn.at * S::kStageBytes;
    const int columns = at.width - at.column;
    const char* const from =
        static_cast<const char*>(params.b[at.slice]) +
        (std::int64_t{segment.adapter} * at.width + at.column + own_column) * column_bytes;
    const std::int64_t offset = (at.slice_start + at.column + own_y) * 2;
    await_phase(read + turn.at * 8, turn.parity);
    const char* const of_lane = from + (bytes > 0 ? vector * (8 * kBytes) : 0);
    if (whole && columns >= S::kColumns) {
#pragma unroll
      for (int i = 0; i < kCopies; ++i) {
        copy_weights<W>(stage + place_of(i), of_lane + i * (kColumnsATime * column_bytes), bytes);
      }
    } else {
#pragma unroll 1
      for (int i = 0; i < kCopies; ++i) {
        if (own_column + i * kColumnsATime >= columns) {
          break;
        }
        const std::uint32_t to = stage + place_of(i);
        const char* const of_column = of_lane + i * (kColumnsATime * column_bytes);
        if (whole) {
          copy_weights<W>(to, of_column, bytes);
        } else {
          copy_eight(to, of_column, min(bytes, 8));
          copy_eight(to + 8, bytes > 8 ? of_column + 8 : of_column, max(bytes - 8, 0));
        }
      }
    }
    if (params.add_inputs && own_y < columns) {
#pragma unroll
      for (int i = 0; i < kCopiesOfY; ++i) {
        const int row = own_row + i * kRowsATime;
        if (row < segment.rows) {  // the rows of a warp lie behind those of the one before it
          copy_sixteen(stage + place_of_own_y + i * kRowsATime * (S::kColumns * 2),
                       y_rows[row] + offset);
        }
      }
    }
    if constexpr (kEight) {
      to_widen.add(full, widen);
    } else {
      arrive_with_copies(full + turn.at * 8);
    }
    turn.next();
    at.step_on(params, S::kColumns);
  }
  if constexpr (kEight) {
    to_widen.end(full, widen);
  }
  await_own_copies();
}

template <typename H, int kTile, typename W = __nv_bfloat16>
__global__ void __launch_bounds__(PanelApartBlock<kTile>::kThreads + PanelApartBlock<kTile>::kBring,
                                  kPanelExpandTiles[kTile].blocks)
    panel_apart(const __grid_constant__ ExpandParams params,
                const __grid_constant__ PanelExpandPlanOf<W> plan) {
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __trap();  // never launched
#else
  using T = __nv_bfloat16;
  using S = PanelApartBlock<kTile>;
  constexpr int kSteps = S::kSteps;
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
  const std::uint32_t full = shared_address(shared) + S::kRows * 12;
  const std::uint32_t read = full + S::kStages * 8;
  unsigned char* const stages = shared + S::kTable;
  const std::uint32_t ring = shared_address(stages);
  unsigned char* const held = shared + S::kHeld;
  if (thread < segment.rows) {
    tokens[thread] = params.token_order[segment.first + thread];
    y_rows[thread] = static_cast<char*>(params.y) + tokens[thread] * (params.y_stride * 2);
  }
  if (thread == S::kThreads) {
    for (int stage = 0; stage < S::kStages; ++stage) {
      begin_barrier(full + stage * 8, S::kBring);
      begin_barrier(read + stage * 8, 4);
    }
    publish_barriers();
  }
  const int chunk = block % plan.chunks;
  const int first_tile = static_cast<int>(std::int64_t{plan.tiles} * chunk / plan.chunks);
  const int turns =
      static_cast<int>(std::int64_t{plan.tiles} * (chunk + 1) / plan.chunks) - first_tile;
  PanelColumns now;
  now.begin(params, first_tile, S::kColumns);
  __syncthreads();  // barriers and table
  if (thread >= S::kThreads) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(S::kLittle));
    bring_columns<S, W>(params, now, turns, segment, rank, y_rows, thread - S::kThreads, stages,
                        full, read, plan);
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(S::kMuch));
  const int warp = thread / 32;
  const int lane = thread % 32;
  const int g = lane / 4;
  const int t = lane % 4;
  const int rows = min(segment.rows - warp * 16, 16);  // of this warp; may be negative
  const float scale = params.scale == nullptr ? 1.0F : params.scale[segment.adapter];
  const float shrink_scale = plan.sums.scale == nullptr ? 1.0F : plan.sums.scale[segment.adapter];
  constexpr int kNumbers = kNumbersOfH<H>;
  std::uint32_t hidden[kSteps][kNumbers][4];
  const auto take_hidden = [&]() {
    const unsigned char* const first_row = held + (warp * 16 + g) * S::kPitchOfH;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 two = *reinterpret_cast<const float2*>(first_row + i % 2 * 8 * S::kPitchOfH +
                                                            s * 64 + i / 2 * 32 + t * 8);
        std::uint32_t pairs[kNumbers];
        pairs_of_two<H>(two.x, two.y, pairs);
#pragma unroll
        for (int p = 0; p < kNumbers; ++p) {
          hidden[s][p][i] = pairs[p];
        }
      }
    }
  };
  const auto meet = [&]() { asm volatile("bar.sync 1, %0;" ::"n"(S::kThreads) : "memory"); };
  // A tile that has been added to, and waits to leave.
  constexpr int kVectorsOfY = S::kColumns / 8;
  constexpr int kRowsATime = 32 / kVectorsOfY;
  const int y_row = lane / kVectorsOfY;
  const int y_vector = lane % kVectorsOfY;
  int waiting = -1;  // its stage
  int columns_waiting = 0;
  std::int64_t offset_waiting = 0;
  const auto let_leave = [&]() {
    const unsigned char* const ys =
        shared + S::kTable + waiting * S::kStageBytes + S::kBytesOfB + warp * S::kWarpBytesOfY;
    if (y_vector * 8 < columns_waiting) {
#pragma unroll
      for (int i = 0; i < 16 / kRowsATime; ++i) {
        const int row = y_row + i * kRowsATime;
        if (row < rows) {
          *reinterpret_cast<uint4*>(y_rows[warp * 16 + row] + offset_waiting) =
              *reinterpret_cast<const uint4*>(ys + place_of_y<S>(row, y_vector));
        }
      }
    }
    __syncwarp();
    if (lane == 0) {
      arrive(read + waiting * 8);
    }
  };
  RingPlace<S::kStages> turn(0);
  const auto work = [&](const T* bias) {
    await_phase(full + turn.at * 8, turn.parity);
    show_to_groups();  // what other threads copied
    unsigned char* const ys =
        shared + S::kTable + turn.at * S::kStageBytes + S::kBytesOfB + warp * S::kWarpBytesOfY;
    constexpr int kTogether = 8;  // times 8 columns
#pragma unroll 1
    for (int c = 0; c < S::kColumns / 8; c += kTogether) {
      const std::uint32_t at = ring + turn.at * S::kStageBytes + c * 8 * 128;
      const std::uint64_t place = 1ULL << 62 | (8 * 128ULL >> 4) << 32 | 1ULL << 16 | at >> 4;
      const auto lanes_at = [](int s) { return (s / 4 * S::kColumns * 128 + s % 4 * 32) / 16; };
      ColumnScalesOf<W, kTogether / 4> scales;
      scales.load(plan, now.slice, segment.adapter, now.width, now.column + 8 * c + 8 * t);
      float sum[kTogether][4];
      begin_groups();
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
#pragma unroll
        for (int p = kNumbers - 1; p >= 0; --p) {
          multiply_group(sum, hidden[s][p], place + lanes_at(s), s > 0 || p + 1 < kNumbers);
        }
      }
      end_groups();
      if (c == 0 && waiting >= 0) {
        let_leave();
      }
      await_groups<0>();
#pragma unroll
      for (int d = 0; d < kTogether / 4; ++d) {
        float of_bias[8];
        if (bias != nullptr) {
          const int column = now.column + 8 * c + 32 * d + 8 * t;
          unpack<T>(
              column < now.width ? __ldg(reinterpret_cast<const uint4*>(bias + column)) : uint4{},
              of_bias);
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          auto* const to = reinterpret_cast<uint4*>(ys + place_of_y<S>(g + 8 * i, c + 4 * d + t));
          *to = finish_eight<T>(
              scale_of_row(params, scale, segment, tokens, warp * 16 + g + 8 * i), bias != nullptr,
              of_bias, params.add_inputs,
              [&](int e) { return scales(d, e, sum[d * 4 + e / 2][i * 2 + e % 2]); },
              [&] { return *to; });
        }
      }
    }
    __syncwarp();  // sums of all columns of a row
    waiting = turn.at;
    columns_waiting = now.width - now.column;
    offset_waiting = (now.slice_start + now.column + y_vector * 8) * 2;
    turn.next();
  };
  await_previous_kernel();
  let_next_kernel_start();
#pragma unroll 1
  for (int done = 0; done < turns;) {
    const int pieces = min((now.width - now.column + S::kColumns - 1) / S::kColumns, turns - done);
    meet();  // h of the slice before has been read
    hold_hidden<S, H>(params, plan.sums, segment, tokens, now.slice, rank, shrink_scale,
                      scales_of_lanes(plan, now.slice, segment.adapter, params.max_rank), held);
    meet();
    take_hidden();
    const T* bias = static_cast<const T*>(params.bias[now.slice]);
    if (bias != nullptr) {
      bias += std::int64_t{segment.adapter} * now.width;
    }
#pragma unroll 1
    for (int piece = 0; piece < pieces; ++piece) {
      work(bias);
      now.step_on(params, S::kColumns);
    }
    done += pieces;
  }
  let_leave();
#endif
}

}  // namespace lora_bench::kernels
