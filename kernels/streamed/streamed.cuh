#pragma once

#include <type_traits>

#include "kernels/asynchronous.cuh"
#include "kernels/dtype.cuh"
#include "kernels/link.cuh"
#include "kernels/streamed/streamed.h"
#include "kernels/streamed/streamed_hidden.cuh"
#include "kernels/streamed/streamed_products.cuh"

// W flows through a ring of stages from the moment a block starts; only x waits for the kernel
// before. A block owns whole columns of y, so no sum of the base leaves it. Each part of the work
// has warps of its own, so that none waits for another's latency:
//   eight multiply: of a stage each takes every eighth group of 32 columns, 16 rows of W as the one
//     operand, eight rows of x as the other, with the columns of both in the same order, in which a
//     lane reads 16 bytes of each;
//   two finish: they add the sums of those eight in turn, and what adapters add, and round once;
//   one copies W;
//   two make h where there are adapters, while W streams (streamed_hidden.cuh). Units of y that are
//     done before h is are kept.
// Bound: memory.
namespace lora_bench::kernels {

constexpr int kMultiplyWarps = 8;
constexpr int kFinishWarps = 2;
constexpr int kCopyWarp = kMultiplyWarps + kFinishWarps;
constexpr int kBaseWarps = kCopyWarp + 1;
constexpr int kUnitRows = static_cast<int>(kStreamedRows);
constexpr int kGroupColumns = static_cast<int>(kStreamedGroup);
constexpr int kStageColumns = 1024;  // copies of 2 KB: of half of that they are a tenth slower
constexpr int kPitch =
    kStageColumns * 2 + 64;  // rows that a quarter of a warp reads lie in other banks
constexpr int kStageBytes = kUnitRows * kPitch;
constexpr int kStages = 3;
constexpr int kUnderWay = 2;      // stages, once the ring was full: with more, memory is slower
constexpr int kMostTogether = 2;  // units that share what is read of x
constexpr int kGroupsEach = kStageColumns / kGroupColumns / kMultiplyWarps;  // of a warp in a stage
constexpr int kSums = kUnitRows * static_cast<int>(kStreamedMostTokens);  // of one warp in a unit
constexpr int kKept = 4;                                                  // units that wait for h
constexpr int kSumsAt = kStages * kStageBytes;  // of two units, of every warp
constexpr int kKeptAt = kSumsAt + 2 * kMultiplyWarps * kSums * 4;
constexpr int kBarriersAt = kKeptAt + kKept * kSums * 4;
constexpr int kHiddenAt = kBarriersAt + 128;  // as much as the adapters need
static_assert((2 * kStages + 5) * 8 <= 128);
static_assert(kUnderWay <= kStages);

// Barriers, in the order in which they lie.
struct StreamedBarriers {
  std::uint32_t full, empty;            // of each stage
  std::uint32_t sums_full, sums_empty;  // of each of two units
  std::uint32_t hidden_full;
  __device__ explicit StreamedBarriers(unsigned char* shared)
      : full(shared_address(shared + kBarriersAt)),
        empty(full + kStages * 8),
        sums_full(empty + kStages * 8),
        sums_empty(sums_full + 16),
        hidden_full(sums_empty + 16) {}
  __device__ void begin() const {
    for (int stage = 0; stage < kStages; ++stage) {
      begin_barrier(full + stage * 8);
      begin_barrier(empty + stage * 8, kMultiplyWarps);
    }
    for (int unit = 0; unit < 2; ++unit) {
      begin_barrier(sums_full + unit * 8, kMultiplyWarps);
      begin_barrier(sums_empty + unit * 8, kFinishWarps);
    }
    begin_barrier(hidden_full, 32 * kHiddenWarps);
    publish_barriers();
  }
};

// Blocks begin a unit at different columns, so that not all read the same part of a row at once.
struct StreamedColumns {
  int depth, first;
  __device__ explicit StreamedColumns(std::int64_t all) : depth(static_cast<int>(all)) {
    const int chunks = (depth + kStageColumns - 1) / kStageColumns;
    first = static_cast<int>(blockIdx.x) % chunks * kStageColumns;
  }
  [[nodiscard]] __device__ int after(int column) const {
    return column + kStageColumns < depth ? column + kStageColumns : 0;
  }
};

// Of the units of 16 rows of W, those of this block: as many as any other has, or one less.
struct StreamedShare {
  int first, last;
};
__device__ inline StreamedShare own_share(int units) {
  const auto at = [&](unsigned block) {
    return static_cast<int>(static_cast<std::int64_t>(block) * units / gridDim.x);
  };
  return {at(blockIdx.x), at(blockIdx.x + 1)};
}

// Whether the phase of that parity has ended.
__device__ inline bool has_ended(std::uint32_t barrier, unsigned parity) {
  std::uint32_t ended = 0;
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.u32 %0, 1, 0, done;\n"
      "}"
      : "=r"(ended)
      : "r"(barrier), "r"(parity)
      : "memory");
  return ended != 0;
}

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

// What adapters add to one column of y for one token: where its lanes of B lie, and its h.
template <typename T>
struct StreamedAddition {
  const T* b = nullptr;
  const float* h = nullptr;
  int rank = 0;  // 0: nothing is added

  __device__ StreamedAddition(const ExpandParams& expand, const float* hidden, int id, int of_id,
                              int token, std::int64_t column) {
    column -= expand.first_column;
    const int max_rank = static_cast<int>(expand.max_rank);
    for (int slice = 0; id >= 0 && column >= 0 && slice < expand.slices; ++slice) {
      const std::int64_t width = expand.width[slice];
      if (column < width) {
        b = static_cast<const T*>(expand.b[slice]) + (id * width + column) * max_rank;
        h = hidden + (slice * static_cast<int>(expand.tokens) + token) * max_rank;
        rank = of_id;
        return;
      }
      column -= width;
    }
  }
  __device__ uint4 load(int lane) const {
    return lane < rank ? *reinterpret_cast<const uint4*>(b + lane) : uint4{};
  }
  __device__ void ask() const {
    constexpr int kLanes = 16;  // of 32 bytes, what memory gives at once
    for (int lane = 0; lane < rank; lane += kLanes) {
      asm volatile("prefetch.global.L2 [%0];" ::"l"(b + lane) : "memory");
    }
  }
  // Eight lanes from `lane` on; those of B above the rank hold anything, those of h 0.
  __device__ float product(int lane, const uint4& of_b) const {
    float sum = 0;
    if (lane < rank) {
      const T* const values = reinterpret_cast<const T*>(&of_b);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        sum += lane + i < rank ? h[lane + i] * to_float(values[i]) : 0.0F;
      }
    }
    return sum;
  }
};

// What adapters add to the elements of a thread in a unit. B is asked for as soon as the unit is
// known, and what can be is worked out before its sums are there.
template <typename T, int kEach>
struct StreamedDeltas {
  static constexpr int kEarly = 2;  // vectors of B
  StreamedAddition<T> of[kEach];
  uint4 early[kEach][kEarly];

  template <typename Make>
  __device__ explicit StreamedDeltas(const Make& make, std::integral_constant<int, 2>)
      : of{make(0), make(1)} {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int j = 0; j < kEarly; ++j) {
        early[i][j] = of[i].load(8 * j);
      }
    }
  }
  __device__ float delta(int i) const {
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kEarly; ++j) {
      sum += of[i].product(8 * j, early[i][j]);
    }
    for (int lane = 8 * kEarly; lane < of[i].rank; lane += 8) {
      sum += of[i].product(lane, of[i].load(lane));
    }
    return sum;
  }
};

template <typename T, bool kAdapters>
__device__ void finish_units(const StreamedParams& params, const StreamedAdapters& adapters,
                             StreamedShare share, const StreamedBarriers& barriers,
                             unsigned char* shared) {
  constexpr int kTogether = 32 * kFinishWarps;
  constexpr int kEach = kSums / kTogether;  // elements of a thread in a unit
  const auto* const sums = reinterpret_cast<const float*>(shared + kSumsAt);
  auto* const kept_sums = reinterpret_cast<float*>(shared + kKeptAt);
  const auto* const hidden = reinterpret_cast<const float*>(shared + kHiddenAt);
  const int thread = static_cast<int>(threadIdx.x) - 32 * kMultiplyWarps;
  const int row = thread % kUnitRows;
  const auto token_of = [&](int i) { return (thread + i * kTogether) / kUnitRows; };
  const auto column_of = [&](int unit) {
    return static_cast<std::int64_t>(unit) * kUnitRows + row;
  };
  int id[kEach];
  int rank[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    id[i] = -1;
    rank[i] = 0;
    if constexpr (kAdapters) {
      id[i] = token_of(i) < params.tokens ? adapters.expand.adapter_of_token[token_of(i)] : -1;
      rank[i] = id[i] >= 0 ? adapters.expand.rank[id[i]] : 0;
    }
  }
  const auto deltas_of = [&](int unit) {
    return StreamedDeltas<T, kEach>(
        [&](int i) {
          return StreamedAddition<T>(adapters.expand, hidden, id[i], rank[i], token_of(i),
                                     column_of(unit));
        },
        std::integral_constant<int, kEach>{});
  };
  const auto put = [&](int unit, int i, float total) {
    if (token_of(i) < params.tokens) {
      static_cast<T*>(params.y)[token_of(i) * params.columns + column_of(unit)] =
          from_float<T>(total);
    }
  };
  RingPlace<2> of_unit(0);
  const auto await_sums = [&](int unit, float(&total)[kEach]) {
    await_phase(barriers.sums_full + of_unit.at * 8, of_unit.parity);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const float* const of = sums + of_unit.at * kMultiplyWarps * kSums + i * kTogether + thread;
      total[i] = of[0];
#pragma unroll
      for (int other = 1; other < kMultiplyWarps; ++other) {
        total[i] += of[other * kSums];
      }
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      arrive(barriers.sums_empty + of_unit.at * 8);
    }
    of_unit.next();
    if (params.bias != nullptr) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        total[i] += to_float(static_cast<const T*>(params.bias)[column_of(unit)]);
      }
    }
  };
  int unit = share.first;
  if constexpr (kAdapters) {
    // B is wanted once h is there, unit after unit: it should not come from memory then.
    for (int soon = share.first; soon < share.last; ++soon) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const StreamedAddition<T> addition(adapters.expand, hidden, id[i], rank[i], token_of(i),
                                           column_of(soon));
        addition.ask();
      }
    }
    // Sums that are there before h is are kept.
    int kept = 0;
    const int most = min(kKept, share.last - share.first);
    while (kept < most && !has_ended(barriers.hidden_full, 0)) {
      float total[kEach];
      await_sums(unit++, total);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        kept_sums[kept * kSums + i * kTogether + thread] = total[i];
      }
      ++kept;
    }
    await_phase(barriers.hidden_full, 0);
#pragma unroll 2
    for (int at = 0; at < kept; ++at) {
      const StreamedDeltas<T, kEach> deltas = deltas_of(share.first + at);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        put(share.first + at, i, kept_sums[at * kSums + i * kTogether + thread] + deltas.delta(i));
      }
    }
  }
  for (; unit < share.last; ++unit) {
    float delta[kEach] = {};
    if constexpr (kAdapters) {
      const StreamedDeltas<T, kEach> deltas = deltas_of(unit);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        delta[i] = deltas.delta(i);
      }
    }
    float total[kEach];
    await_sums(unit, total);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      put(unit, i, kAdapters ? total[i] + delta[i] : total[i]);
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
  if (warp == kCopyWarp) {
    copy_weights<T>(params, share, together, barriers, shared_address(shared));
  } else if (warp > kCopyWarp) {
    if constexpr (kAdapters) {
      make_hidden<T>(params, adapters, share.first * kStreamedRows, share.last * kStreamedRows,
                     reinterpret_cast<float*>(shared + kHiddenAt),
                     static_cast<int>(threadIdx.x) - 32 * kBaseWarps, barriers.hidden_full);
    }
  } else if (warp >= kMultiplyWarps) {
    await_previous_kernel();
    finish_units<T, kAdapters>(params, adapters, share, barriers, shared);
  } else {
    await_previous_kernel();
    multiply_units<T>(params, share, together, barriers, shared);
  }
#endif
}

}  // namespace lora_bench::kernels
