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
#include "kernels/panel/panel_products.cuh"
#include "kernels/panel/panel_rows.cuh"

// expand of a panel for ranks above 128, bf16 on sm_90a: h, of fp32 in three parts, lies in shared
// memory, as registers hold that of 128 lanes.
//   grid      that of panel_expand: (row tiles) x (chunks of column tiles), the last fastest
//   block     two groups of four warps that multiply, and four warps that bring B. An item, two
//             column tiles of a slice or the last one, belongs to one group: while it adds what it
//             has to y, the other one multiplies
//   memory    h of a slice, 64 lanes of a part as the products expect it; a ring of pieces, each 64
//             lanes of the columns of an item. y goes through registers, asked for before the
//             products
//   barriers  two a piece: it has come, it has been read; two of both groups a slice: h
//   order     that of panel_expand
//   bytes     that of panel_expand
//   bound     products: three of them for each of the floor; then the L2
namespace lora_bench::kernels {

template <typename H, int kTile>
struct PanelHeldBlock {
  static constexpr PanelExpandTile kShape = kPanelExpandTiles[kTile];
  static constexpr int kRows = 64;
  static constexpr int kColumns = 128;
  static constexpr int kLanesOfPiece = 64;
  static constexpr int kPieces = kShape.steps * 16 / kLanesOfPiece;
  static constexpr int kGroups = 2;
  static constexpr int kMultiply = kGroups * 128;  // threads
  static constexpr int kBring = 128;
  static constexpr int kThreads = kMultiply + kBring;
  static constexpr PanelExpandBlockShape kBlock = panel_expand_block(kShape, kNumbersOfH<H>, true);
  static constexpr int kTable = kPanelHeldTable;
  static constexpr int kPartBytes = kRows * 128;  // of 64 lanes of h
  static constexpr int kHeldBytes = panel_held_bytes(kShape.steps, kNumbersOfH<H>);
  static constexpr int kPieceBytes = kPanelHeldPiece;
  static constexpr int kStages = kBlock.stages;
  static_assert(kBlock.kind == PanelExpandKind::kHeld && kThreads == 32 * kBlock.warps);
  static_assert(kHeldBytes == kNumbersOfH<H> * kPieces * kPartBytes &&
                kPieceBytes == kColumns * 128);
  static_assert(kShape.warps_of_rows == 4 && kShape.wide == 64 && kShape.warps_of_columns == 1);
  static_assert(kRows * 12 + 2 * kStages * 8 <= kTable);
};

// Where a block is in its columns: items of up to two column tiles of a slice.
struct PanelItems : PanelColumns {
  int left = 0;  // column tiles, of this item on

  __device__ void begin(const ExpandParams& params, int first_tile, int tiles) {
    left = tiles;
    PanelColumns::begin(params, first_tile, 64);
  }
  __device__ int tiles() const { return min(min(left, 2), (width - column + 63) / 64); }
  __device__ bool step_on(const ExpandParams& params) {  // true: a slice begins
    const int done = tiles();
    left -= done;
    return PanelColumns::step_on(params, done * 64);
  }
};

// Asked for where it stands, whatever lies between it and its use.
__device__ inline uint4 ask_for_sixteen(const void* from) {
  uint4 value;
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from)
               : "memory");
  return value;
}

// Four lanes of h as bf16 numbers, where the products expect them.
template <typename S, typename H>
__device__ inline void hold_numbers(unsigned char* held, int row, int four, const float4& h) {
  constexpr int kNumbers = kNumbersOfH<H>;
  std::uint32_t first[kNumbers], second[kNumbers];
  pairs_of_two<H>(h.x, h.y, first);
  pairs_of_two<H>(h.z, h.w, second);
  unsigned char* to = held + four / 16 * (kNumbers * S::kPartBytes) + row * 128 +
                      ((four % 16 / 2) ^ (row % 8)) * 16 + four % 2 * 8;
#pragma unroll
  for (int p = 0; p < kNumbers; ++p) {
    *reinterpret_cast<uint2*>(to + p * S::kPartBytes) = {first[p], second[p]};
  }
}

// By the warps that bring: pieces of B in the order of items, lanes ascending. These warps have
// nobody to hide their instructions behind, and all wait for them: of whole items few a copy.
template <typename S>
__device__ inline void bring_pieces(const ExpandParams& params, PanelItems items, int adapter,
                                    int rank, int thread, std::uint32_t ring, std::uint32_t full,
                                    std::uint32_t read) {
  constexpr int kVectors = 8;
  constexpr int kColumnsATime = S::kBring / kVectors;
  constexpr int kCopies = S::kColumns / kColumnsATime;
  static_assert(kColumnsATime == 16);
  const int pieces = (rank + S::kLanesOfPiece - 1) / S::kLanesOfPiece;
  const auto max_rank = static_cast<int>(params.max_rank);
  const bool whole = max_rank % 8 == 0;  // else columns begin on 8 bytes
  const int own_column = thread / kVectors;
  const int vector = thread % kVectors;
  const int column_bytes = max_rank * 2;
  // Fragment column i of tile j is column 8 * (i / 2) + 2 * j + i % 2 of 32. Sixteen columns on are
  // two tiles on, 32 a whole run.
  const int place = own_column % 8 / 2 * 8 + own_column / 8 * 2 + own_column % 2;
  const std::uint32_t even = ring + place * 128 + (vector ^ (place % 8)) * 16;
  const std::uint32_t odd = ring + (place + 4) * 128 + (vector ^ ((place + 4) % 8)) * 16;
  const auto place_of = [&](int i) {
    return (i % 2 == 0 ? even : odd) + static_cast<std::uint32_t>(i / 2 * 32 * 128);
  };
  int stage = 0;
  unsigned parity = 1;  // the first pieces find their places free
#pragma unroll 1
  while (items.left > 0) {
    const int columns = min(items.tiles() * 64, items.width - items.column);
    const char* from =
        static_cast<const char*>(params.b[items.slice]) +
        (std::int64_t{adapter} * items.width + items.column + own_column) * column_bytes;
#pragma unroll 1
    for (int piece = 0; piece < pieces; ++piece) {
      const int lane = piece * S::kLanesOfPiece + vector * 8;
      const std::uint32_t at = stage * S::kPieceBytes;
      await_phase(read + stage * 8, parity);
      const int bytes = min(max((rank - lane) * 2, 0), 16);
      const char* const of_lane = from + (bytes > 0 ? lane * 2 : 0);
      if (whole && columns == S::kColumns) {
#pragma unroll
        for (int i = 0; i < kCopies; ++i) {
          copy_sixteen(at + place_of(i), of_lane + i * (kColumnsATime * column_bytes), bytes);
        }
      } else {
#pragma unroll 1
        for (int i = 0; i < kCopies; ++i) {
          const std::uint32_t to = at + place_of(i);
          const char* const of_column = of_lane + i * (kColumnsATime * column_bytes);
          if (own_column + i * kColumnsATime >= columns) {
            continue;
          }
          if (whole) {
            copy_sixteen(to, of_column, bytes);
          } else {
            copy_eight(to, of_column, min(bytes, 8));
            copy_eight(to + 8, bytes > 8 ? of_column + 8 : of_column, max(bytes - 8, 0));
          }
        }
      }
      arrive_with_copies(full + stage * 8);
      if (++stage == S::kStages) {
        stage = 0;
        parity ^= 1;
      }
    }
    items.step_on(params);
  }
  await_own_copies();
}

template <typename H, int kTile>
__global__ void __launch_bounds__(PanelHeldBlock<H, kTile>::kThreads, 1)
    panel_held(const __grid_constant__ ExpandParams params,
               const __grid_constant__ PanelExpandPlan plan) {
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __trap();  // never launched
#else
  using T = __nv_bfloat16;
  using S = PanelHeldBlock<H, kTile>;
  constexpr int kNumbers = kNumbersOfH<H>;
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
  unsigned char* held = shared + S::kTable;
  const std::uint32_t ring = shared_address(held) + S::kHeldBytes;
  for (int row = thread; row < segment.rows; row += S::kThreads) {
    tokens[row] = params.token_order[segment.first + row];
    y_rows[row] = static_cast<char*>(params.y) + tokens[row] * (params.y_stride * 2);
  }
  if (thread == 0) {
    for (int stage = 0; stage < S::kStages; ++stage) {
      begin_barrier(full + stage * 8, S::kBring);
      begin_barrier(read + stage * 8, 4);
    }
    publish_barriers();
  }
  const int chunk = block % plan.chunks;
  const int first_tile = static_cast<int>(std::int64_t{plan.tiles} * chunk / plan.chunks);
  PanelItems items;
  items.begin(params, first_tile,
              static_cast<int>(std::int64_t{plan.tiles} * (chunk + 1) / plan.chunks) - first_tile);
  __syncthreads();  // barriers and table
  if (thread >= S::kMultiply) {
    bring_pieces<S>(params, items, segment.adapter, rank, thread - S::kMultiply, ring, full, read);
    return;
  }
  const int group = thread / 128;
  const int warp = thread / 32 % 4;
  const int lane = thread % 32;
  const int g = lane / 4;
  const int t = lane % 4;
  const int pieces = (rank + S::kLanesOfPiece - 1) / S::kLanesOfPiece;
  const float scale = params.scale == nullptr ? 1.0F : params.scale[segment.adapter];
  const float shrink_scale = plan.sums.scale == nullptr ? 1.0F : plan.sums.scale[segment.adapter];
  const int first_row = warp * 16 + g;
  char* of_row[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    of_row[i] = first_row + 8 * i < segment.rows ? y_rows[first_row + 8 * i] : nullptr;
  }
  uint4 y[4][2];
  const auto ask_for_y = [&]() {
    const std::int64_t offset = (items.slice_start + items.column + 8 * t) * 2;
    const int columns = min(items.tiles() * 64, items.width - items.column);
#pragma unroll
    for (int d = 0; d < 4; ++d) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        y[d][i] = uint4{};
        if (params.add_inputs && of_row[i] != nullptr && 32 * d + 8 * t < columns) {
          y[d][i] = ask_for_sixteen(of_row[i] + offset + d * 64);
        }
      }
    }
  };
  const auto take_hidden = [&]() {
    const float* slice = plan.sums.sums + items.slice * params.tokens * params.max_rank;
    add_all_parts<S::kPieces * S::kLanesOfPiece / 4, S::kMultiply>(
        plan.sums, slice, params.max_rank, segment.rows, tokens, rank, shrink_scale, NoLaneScales{},
        [&](int row, int four, const float4& h) {
          hold_numbers<S, H>(held, row, four, rounded_to<H>(h));
        });
    show_to_groups();
  };
  const auto meet = [&]() { asm volatile("bar.sync 1, %0;" ::"n"(S::kMultiply) : "memory"); };
  await_previous_kernel();
  let_next_kernel_start();
  take_hidden();
  meet();
  const std::uint64_t layout = 1ULL << 62 | std::uint64_t{1024 >> 4} << 32 | 1ULL << 16;
  const std::uint64_t h_place = layout | shared_address(held) >> 4;
  const std::uint64_t ring_place = layout | ring >> 4;
  int stage = 0;
  unsigned parity = 0;
  const auto skip = [&](int count) {
    stage += count;
    while (stage >= S::kStages) {
      stage -= S::kStages;
      parity ^= 1;
    }
  };
  const auto release = [&](int of) {
    if (lane == 0) {
      arrive(read + of * 8);
    }
  };
#pragma unroll 1
  for (int item = 0; items.left > 0; ++item) {
    if (item % S::kGroups == group) {
      ask_for_y();
      float sum[64];
      int before = 0;
#pragma unroll 1
      for (int piece = 0; piece < pieces; ++piece) {
        await_phase(full + stage * 8, parity);
        show_to_groups();  // what other threads copied
        begin_groups();
        const std::uint64_t b = ring_place + stage * (S::kPieceBytes >> 4);
        const std::uint64_t h = h_place + piece * (kNumbers * S::kPartBytes >> 4);
#pragma unroll
        for (int s = 0; s < 4; ++s) {
#pragma unroll
          for (int p = kNumbers - 1; p >= 0; --p) {
            multiply_lanes<T, 128>(sum, h + p * (S::kPartBytes >> 4) + s * 2, b + s * 2,
                                   piece > 0 || s > 0 || p + 1 < kNumbers);
          }
        }
        end_groups();
        if (piece > 0) {
          await_groups<1>();
          release(before);
        }
        before = stage;
        skip(1);
      }
      await_groups<0>();
      release(before);
      const int columns = min(items.tiles() * 64, items.width - items.column);
      const std::int64_t offset = (items.slice_start + items.column + 8 * t) * 2;
      const T* bias = static_cast<const T*>(params.bias[items.slice]);
      if (bias != nullptr) {
        bias += std::int64_t{segment.adapter} * items.width + items.column + 8 * t;
      }
#pragma unroll
      for (int d = 0; d < 4; ++d) {
        const bool there = 32 * d + 8 * t < columns;
        float of_bias[8];
        if (bias != nullptr) {
          unpack<T>(there ? __ldg(reinterpret_cast<const uint4*>(bias + 32 * d)) : uint4{},
                    of_bias);
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const uint4 eight = finish_eight<T>(
              scale_of_row(params, scale, segment, tokens, first_row + 8 * i), bias != nullptr,
              of_bias, params.add_inputs,
              [&](int e) { return sum[(d * 4 + e / 2) * 4 + i * 2 + e % 2]; },
              [&] { return y[d][i]; });
          if (there && of_row[i] != nullptr) {
            *reinterpret_cast<uint4*>(of_row[i] + offset + d * 64) = eight;
          }
        }
      }
    } else {
      skip(pieces);
    }
    if (items.step_on(params) && items.left > 0) {
      meet();  // h has been read
      take_hidden();
      meet();
    }
  }
#endif
}

}  // namespace lora_bench::kernels
