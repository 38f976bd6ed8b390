#pragma once

#include "kernels/asynchronous.cuh"
#include "kernels/link.cuh"
#include "kernels/streamed/streamed_block.cuh"
#include "kernels/streamed/streamed_finish.cuh"
#include "kernels/streamed/streamed_hidden.cuh"
#include "kernels/streamed/streamed_products.cuh"

// W flows through a ring of stages from the moment a block starts; only x waits for the kernel
// before. A block owns whole columns of y, so no sum of the base leaves it. Each part of the work
// has warps of its own, so that none waits for another's latency:
//   eight multiply: of a stage each takes every eighth group of 32 columns, 16 rows of W as the one
//     operand, eight rows of x as the other, with the columns of both in the same order, in which a
//     lane reads 16 bytes of each. Where rows are many, two units share what is read of x;
//   two finish: they add the sums of those eight in turn, and what adapters add, and round once;
//   one copies W;
//   three make h where there are adapters, while W streams (streamed_hidden.cuh). Units of y that
//     are done before h is are kept.
// Bound: memory.
namespace lora_bench::kernels {

template <typename T>
__device__ void copy_weights(const StreamedParams& params, StreamedShare share, int together,
                             const StreamedBarriers& barriers, std::uint32_t stages) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const StreamedColumns columns(params.depth);
  const auto* const w = static_cast<const T*>(params.w);
  const std::uint64_t policy = evict_first();
  RingPlace<kStages> stage(1);  // nobody has filled it yet
  RingPlace<kStages> there(0);  // kUnderWay before it
#pragma unroll
  for (int i = kUnderWay; i < kStages; ++i) {
    there.next();
  }
  int first_filled = 0;
  for (int unit = share.first; unit < share.last; unit += together) {
    const int end = min(unit + together, share.last);
    int column = columns.first;
    do {
      const int bytes = min(kStageColumns, columns.depth - column) * 2;
      for (int of = unit; of < end; ++of) {
        await_phase(barriers.empty + stage.at * 8, stage.parity);
        if (first_filled < kStages) {
          ++first_filled;
        } else {
          await_phase(barriers.full + there.at * 8, there.parity);
          there.next();
        }
        if (lane == 0) {
          expect_bytes(barriers.full + stage.at * 8, bytes * kUnitRows);
        }
        __syncwarp();
        if (lane < kUnitRows) {
          copy_bulk(stages + stage.at * kStageBytes + lane * kPitch,
                    w + (of * kUnitRows + lane) * params.depth + column, bytes,
                    barriers.full + stage.at * 8, policy);
        }
        stage.next();
      }
      column = columns.after(column);
    } while (column != columns.first);
  }
}

template <typename T>
__device__ void multiply_units(const StreamedParams& params, StreamedShare share, int together,
                               const StreamedBarriers& barriers, unsigned char* shared) {
  auto* const sums = reinterpret_cast<float*>(shared + kSumsAt);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const StreamedColumns columns(params.depth);
  const StreamedRows<T> rows(params, lane);
  uint4 next[kGroupsEach];  // x comes a stage ahead
  const auto load_next = [&](int column) {
#pragma unroll
    for (int i = 0; i < kGroupsEach; ++i) {
      next[i] = rows.load(column + (warp + i * kMultiplyWarps) * kGroupColumns);
    }
  };
  load_next(columns.first);
  RingPlace<kStages> stage(0);
  RingPlace<2> of_unit(1);
  for (int unit = share.first; unit < share.last; unit += together) {
    const int units = min(together, share.last - unit);
    float sum[kMostTogether][4] = {};
    int column = columns.first;
    do {
      uint4 of_x[kGroupsEach];
#pragma unroll
      for (int i = 0; i < kGroupsEach; ++i) {
        of_x[i] = next[i];
      }
      load_next(columns.after(column));
#pragma unroll
      for (int of = 0; of < kMostTogether; ++of) {
        if (of == units) {
          break;
        }
        await_phase(barriers.full + stage.at * 8, stage.parity);
        const unsigned char* const w =
            shared + stage.at * kStageBytes + lane / 4 * kPitch + lane % 4 * 16;
#pragma unroll
        for (int i = 0; i < kGroupsEach; ++i) {
          const int own = (warp + i * kMultiplyWarps) * kGroupColumns;
          if (column + own < columns.depth) {
            multiply_group<T>(sum[of], *reinterpret_cast<const uint4*>(w + own * 2),
                              *reinterpret_cast<const uint4*>(w + 8 * kPitch + own * 2), of_x[i]);
          }
        }
        __syncwarp();
        if (lane == 0) {
          arrive(barriers.empty + stage.at * 8);
        }
        stage.next();
      }
      column = columns.after(column);
    } while (column != columns.first);
    // [warp][token][row of W]
#pragma unroll
    for (int of = 0; of < kMostTogether; ++of) {
      if (of == units) {
        break;
      }
      await_phase(barriers.sums_empty + of_unit.at * 8, of_unit.parity);
      float* const to =
          sums + (of_unit.at * kMultiplyWarps + warp) * kSums + lane % 4 * 2 * kUnitRows + lane / 4;
      to[0] = sum[of][0];
      to[kUnitRows] = sum[of][1];
      to[8] = sum[of][2];
      to[kUnitRows + 8] = sum[of][3];
      __syncwarp();
      if (lane == 0) {
        arrive(barriers.sums_full + of_unit.at * 8);
      }
      of_unit.next();
    }
  }
}

template <typename T, bool kAdapters>
__global__ void __launch_bounds__(32 * (kBaseWarps + (kAdapters ? kHiddenWarps : 0)), 2)
    streamed(const __grid_constant__ StreamedParams params,
             const __grid_constant__ StreamedAdapters adapters, int together) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  __trap();
#else
  extern __shared__ __align__(128) unsigned char shared[];
  const StreamedBarriers barriers(shared);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const StreamedShare share = own_share(static_cast<int>(params.columns / kStreamedRows));
  if (threadIdx.x == 0) {
    barriers.begin();
  }
  __syncthreads();
  let_next_kernel_start();
  const HiddenTurn turn{barriers.turn_known,
                        reinterpret_cast<volatile unsigned*>(shared + kTurnAt)};
  if (warp == kCopyWarp) {
    copy_weights<T>(params, share, together, barriers, shared_address(shared));
  } else if (warp > kCopyWarp) {
    if constexpr (kAdapters) {
      make_hidden<T>(params, adapters, share.first * kStreamedRows, share.last * kStreamedRows,
                     reinterpret_cast<float*>(shared + kHiddenAt),
                     static_cast<int>(threadIdx.x) - 32 * kBaseWarps, turn, barriers.hidden_full);
    }
  } else if (warp >= kMultiplyWarps) {
    finish_units<T, kAdapters>(params, adapters, share, barriers, turn, shared);
  } else {
    await_previous_kernel();
    multiply_units<T>(params, share, together, barriers, shared);
  }
#endif
}

}  // namespace lora_bench::kernels
