#pragma once

#include "kernels/chains.h"
#include "kernels/link.cuh"
#include "kernels/panel/panel_copies.cuh"
#include "kernels/panel/panel_hidden.cuh"
#include "kernels/panel/panel_plan.h"
#include "kernels/panel/panel_rows.cuh"
#include "kernels/panel/panel_tuning.h"
#include "kernels/segment/fragments.cuh"
#include "kernels/segment/vectors.cuh"

// expand of a panel.
//   grid      (row tiles) x (chunks of column tiles), the last fastest; full row tiles first
//   block     16 rows a warp, all columns of a tile shared by the warps of a row; walks over the
//             column tiles of its chunk
//   memory    a ring of stages: B of a column tile, for the products; y of a warp, for itself. h of
//   a
//             slice: added up, scaled, in shared memory once, then in registers as what the tensor
//             cores multiply
//   barriers  one a stage: B has come, and what is filled next has been read by all; one a slice: h
//   order     rank ascending, 16 lanes at a time; an fp32 h in three parts, the lowest first
//   products  mma.sync, or on sm_90a by groups of four warps (wgmma), which gives the same bits
//   y         read and written along rows, in whole runs of 128 bytes and more; what is read is
//   asked
//             for stages ahead, before shrink has ended
//   bytes     y twice, B once a row tile, the parts of h once a chunk
//   bound     memory
namespace lora_bench::kernels {

template <int kTile>
struct PanelExpandBlock {
  static constexpr PanelExpandTile kShape = kPanelExpandTiles[kTile];
  static constexpr int kSteps = kShape.steps;
  static constexpr int kWarpsM = kShape.warps_of_rows;
  static constexpr int kWide = kShape.wide;
  static constexpr int kStages = kShape.stages;
  static constexpr int kThreads = 32 * kWarpsM * kShape.warps_of_columns;
  static constexpr int kRows = 16 * kWarpsM;
  static constexpr int kColumns = kWide * kShape.warps_of_columns;
  static constexpr int kRowBytes = kSteps * 32;  // of B
  static constexpr int kBytesOfB = kColumns * kRowBytes;
  static constexpr int kWarpBytesOfY = 16 * kWide * 2;
  static constexpr int kStageBytes = kBytesOfB + kRows * kColumns * 2;
  static constexpr int kTable = (kRows * 12 + 1023) / 1024 * 1024;
  static constexpr int kRing = kStages * kStageBytes;
  static constexpr int kPitchOfH = panel_pitch_of_h(kSteps);
};

// Two numbers, each rounded once.
template <typename T>
__device__ inline std::uint32_t packed(float low, float high) {
  return bits_of(from_float<T>(low)) | bits_of(from_float<T>(high)) << 16;
}
template <>
__device__ inline std::uint32_t packed<__nv_bfloat16>(float low, float high) {
  std::uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

template <typename S, typename H>
__device__ inline void hold_hidden(const ExpandParams& params, const PanelSums& sums,
                                   const Segment& segment, const std::int32_t* tokens, int slice,
                                   int rank, float scale, unsigned char* held) {
  const std::int64_t skipped = slice * params.tokens * params.max_rank;
  if (sums.sums == nullptr) {
    hold_stored<S>(static_cast<const H*>(params.h) + skipped, params.max_rank, segment.rows, tokens,
                   rank, held);
    return;
  }
  const auto hold = [&]<int kParts>() {
    hold_parts<S, H, kParts>(sums, sums.sums + skipped, params.max_rank, segment.rows, tokens, rank,
                             scale, held);
  };
  switch (sums.parts) {
    case 1:
      hold.template operator()<1>();
      break;
    case 2:
      hold.template operator()<2>();
      break;
    case 4:
      hold.template operator()<4>();
      break;
    default:
      hold.template operator()<kChains>();
  }
}

// Sixty-four rows of four warps times 64 columns times 16 lanes.
__device__ inline void multiply_group(float (&d)[8][4], const std::uint32_t (&a)[4],
                                      std::uint64_t b, bool add) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, p, 1, 1, 0;\n}"
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]),
        "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
        "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]),
        "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
        "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]),
        "+f"(d[7][2]), "+f"(d[7][3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));
#else
  __trap();  // the host asks for groups on sm_90a alone
#endif
}

__device__ inline void begin_groups() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

__device__ inline void await_groups() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
}

// What this thread has written to shared memory may be read by multiply_group.
__device__ inline void show_to_groups() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

template <typename T, typename H, int kTile, bool kGroups>
__global__ void __launch_bounds__(PanelExpandBlock<kTile>::kThreads,
                                  kPanelExpandTiles[kTile].blocks)
    panel_expand(const __grid_constant__ ExpandParams params,
                 const __grid_constant__ PanelExpandPlan plan) {
  using S = PanelExpandBlock<kTile>;
  constexpr int kSteps = S::kSteps, kWide = S::kWide, kStages = S::kStages;
  constexpr int kThreads = S::kThreads, kColumns = S::kColumns;
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
  unsigned char* held = shared + S::kTable + S::kRing;
  for (int row = thread; row < segment.rows; row += kThreads) {
    tokens[row] = params.token_order[segment.first + row];
    y_rows[row] = static_cast<char*>(params.y) + tokens[row] * (params.y_stride * 2);
  }
  const int warp = thread / 32;
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
  // Two cursors over the column tiles: what is brought, and what is worked on.
  struct Cursor {
    int slice = 0;
    int column = 0;
    int width = 0;
    std::int64_t slice_start = 0;
  };
  Cursor ahead;
  ahead.slice_start = params.first_column;
  for (int tile = first_tile;; ++ahead.slice) {
    ahead.width = static_cast<int>(params.width[ahead.slice]);
    const int of_slice = (ahead.width + kColumns - 1) / kColumns;
    if (tile < of_slice) {
      ahead.column = tile * kColumns;
      break;
    }
    tile -= of_slice;
    ahead.slice_start += ahead.width;
  }
  Cursor now = ahead;
  const auto step_on = [&](Cursor& cursor) {  // true: a slice begins
    cursor.column += kColumns;
    if (cursor.column < cursor.width) {
      return false;
    }
    cursor.column = 0;
    do {
      cursor.slice_start += cursor.width;
      ++cursor.slice;
      cursor.width =
          cursor.slice < params.slices ? static_cast<int>(params.width[cursor.slice]) : 1;
    } while (cursor.width == 0);
    return true;
  };
  const std::uint32_t ring = shared_address(shared) + S::kTable;
  const auto max_rank = static_cast<int>(params.max_rank);
  // Copies of B: vector thread % kVectors of columns thread / kVectors, and so on.
  constexpr int kVectors = kSteps * 2;
  constexpr int kColumnsATime = kThreads / kVectors;
  constexpr int kCopies = (kColumns + kColumnsATime - 1) / kColumnsATime;
  static_assert(kColumns % kColumnsATime == 0 || kCopies == 1);
  const int own_column = thread / kVectors;
  const int own_vector = thread % kVectors;
  const int own_bytes = min(max((rank - own_vector * 8) * 2, 0), 16);
  const int vector_offset = own_bytes > 0 ? own_vector * 16 : 0;
  const std::int64_t column_bytes = max_rank * 2;
  const auto b_of = [&](const Cursor& cursor) {
    return static_cast<const char*>(params.b[cursor.slice < params.slices ? cursor.slice : 0]) +
           (segment.adapter * cursor.width + cursor.column + own_column) * column_bytes +
           vector_offset;
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
  const char* b = b_of(ahead);
  int brought = 0;
  int bring_offset = 0;
  const auto bring = [&]() {
    if (brought < turns) {
#pragma unroll
      for (int i = 0; i < kCopies; ++i) {
        const int column = own_column + i * kColumnsATime;
        if ((kColumns % kColumnsATime == 0 || column < kColumns) &&
            ahead.column + column < ahead.width) {
          // Fragment column i of tile j is column 8 * (i / 2) + 2 * j + i % 2 of 32.
          const int place =
              column / 32 * 32 + column % 8 / 2 * 8 + column % 32 / 8 * 2 + column % 2;
          copy_sixteen(ring + bring_offset + place_of_b(place, own_vector),
                       b + i * kColumnsATime * column_bytes, own_bytes);
        }
      }
      if (params.add_inputs && ahead.column + warp_column + y_chunk * 8 < ahead.width) {
        const std::int64_t offset =
            (ahead.slice_start + ahead.column + warp_column + y_chunk * 8) * 2;
#pragma unroll
        for (int i = 0; i < 16 / kRowsATime; ++i) {
          const int row = y_row + i * kRowsATime;
          if (row < rows) {
            bring_whole_16(y_ring + bring_offset + y_place(row, y_chunk),
                           y_rows[warp_row + row] + offset);
          }
        }
      }
      ++brought;
      b += kColumns * column_bytes;
      if (step_on(ahead)) {
        b = b_of(ahead);
      }
      bring_offset = bring_offset + S::kStageBytes == S::kRing ? 0 : bring_offset + S::kStageBytes;
    }
    close_brought();
  };
#pragma unroll 1
  for (int i = 0; i < kStages - 1; ++i) {
    bring();
  }
  const float scale = params.scale == nullptr ? 1.0F : params.scale[segment.adapter];
  const float shrink_scale = plan.sums.scale == nullptr ? 1.0F : plan.sums.scale[segment.adapter];
  await_previous_kernel();
  let_next_kernel_start();

  HiddenFragment<T, H> hidden[kGroups ? 1 : kSteps];
  std::uint32_t of_group[kGroups ? kSteps : 1][3][4];
  const bool active = kGroups ? warp % S::kWarpsM / 4 * 64 < segment.rows : rows > 0;
  const T* bias = nullptr;
  int slice_of_hidden = -1;
  int stage_offset = 0;
#pragma unroll 1
  for (int turn = 0; turn < turns; ++turn) {
    if (now.slice != slice_of_hidden) {
      slice_of_hidden = now.slice;
      bias = static_cast<const T*>(params.bias[now.slice]);
      if (bias != nullptr) {
        bias += segment.adapter * now.width;
      }
      hold_hidden<S, H>(params, plan.sums, segment, tokens, now.slice, rank, shrink_scale, held);
      __syncthreads();  // h of this slice is complete
      if constexpr (kGroups) {
#pragma unroll
        for (int s = 0; s < kSteps; ++s) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float2 two = *reinterpret_cast<const float2*>(
                held + (warp_row + g + i % 2 * 8) * S::kPitchOfH + s * 64 + i / 2 * 32 + t * 8);
            std::uint32_t x[3], y[3];
            split_in_three<0xFFFF0000U>(two.x, x);
            split_in_three<0xFFFF0000U>(two.y, y);
#pragma unroll
            for (int p = 0; p < 3; ++p) {
              of_group[s][p][i] = __byte_perm(x[p], y[p], 0x7632);
            }
          }
        }
      }
#pragma unroll
      for (int s = 0; s < (kGroups ? 0 : kSteps); ++s) {
        const unsigned char* of = held + (warp_row + g) * S::kPitchOfH + s * 64 + t * 16;
        const float4 first = *reinterpret_cast<const float4*>(of);
        const float4 second = *reinterpret_cast<const float4*>(of + 8 * S::kPitchOfH);
        if constexpr (sizeof(H) == sizeof(float)) {
          hidden[s].load(first, second);
        } else {
          hidden[s].load({packed<H>(first.x, first.y), packed<H>(first.z, first.w)},
                         {packed<H>(second.x, second.y), packed<H>(second.z, second.w)});
        }
      }
    }
    await_brought<kStages - 2>();
    if constexpr (kGroups) {  // the copies of this thread, before other threads multiply them
      show_to_groups();
    }
    __syncthreads();
    bring();
    if (active) {
      unsigned char* ys =
          shared + S::kTable + stage_offset + S::kBytesOfB + warp * S::kWarpBytesOfY;
      const unsigned char* bs =
          shared + S::kTable + stage_offset + (warp_column + g) * S::kRowBytes + t * 8;
      const int swizzle = g / (kSteps >= 4 ? 1 : 4 / kSteps) % (kSteps >= 4 ? 4 : kSteps);
      constexpr int kTogether = kGroups ? 8 : 4;  // times 8 columns
#pragma unroll 1
      for (int c = 0; c < kWide / 8; c += kTogether) {
        float sum[kTogether][4] = {};
        if constexpr (kGroups) {
          constexpr std::uint64_t kRow = kSteps >= 4 ? 128 : kSteps * 32;
          constexpr std::uint64_t kSwizzle = kSteps >= 4 ? 1 : kSteps == 2 ? 2 : 3;
          const std::uint32_t at =
              ring + stage_offset + (warp_column + c * 8) * static_cast<std::uint32_t>(kRow);
          const std::uint64_t place = kSwizzle << 62 | (8 * kRow >> 4) << 32 | 1ULL << 16 | at >> 4;
          begin_groups();
#pragma unroll
          for (int s = 0; s < kSteps; ++s) {
#pragma unroll
            for (int p = 2; p >= 0; --p) {
              multiply_group(sum, of_group[s][p],
                             place + (s / 4 * kColumns * 128 + s % 4 * 32) / 16, s > 0 || p < 2);
            }
          }
          await_groups();
        }
#pragma unroll
        for (int s = 0; s < (kGroups ? 0 : kSteps); ++s) {
#pragma unroll
          for (int j = 0; j < kTogether; ++j) {
            hidden[s].multiply(sum[j], *reinterpret_cast<const uint2*>(
                                           bs + (c + j) * 8 * S::kRowBytes + (s ^ swizzle) * 32));
          }
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
            float values[8];
#pragma unroll
            for (int e = 0; e < 8; ++e) {
              values[e] = __fmul_rn(scale, sum[d * 4 + e / 2][i % 2 * 2 + e % 2]);
            }
            if (bias != nullptr) {
#pragma unroll
              for (int e = 0; e < 8; ++e) {
                values[e] = __fadd_rn(values[e], of_bias[e]);
              }
            }
            auto* place = reinterpret_cast<uint4*>(ys + y_place(g + 8 * i, c + 4 * d + t));
            if (params.add_inputs) {
              float of[8];
              unpack<T>(*place, of);
#pragma unroll
              for (int e = 0; e < 8; ++e) {
                values[e] = __fadd_rn(values[e], of[e]);
              }
            }
            *place = {packed<T>(values[0], values[1]), packed<T>(values[2], values[3]),
                      packed<T>(values[4], values[5]), packed<T>(values[6], values[7])};
          }
        }
      }
      __syncwarp();  // sums of all columns of a row
      if (now.column + warp_column + y_chunk * 8 < now.width) {
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
    }
    stage_offset = stage_offset + S::kStageBytes == S::kRing ? 0 : stage_offset + S::kStageBytes;
    step_on(now);
  }
}

}  // namespace lora_bench::kernels
