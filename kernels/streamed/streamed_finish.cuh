#pragma once

#include <type_traits>

#include "kernels/dtype.cuh"
#include "kernels/link.cuh"
#include "kernels/streamed/streamed_block.cuh"

// How a unit of y is finished: the sums of eight warps in turn, bias, and what adapters add.
namespace lora_bench::kernels {

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
                             const HiddenTurn& turn, unsigned char* shared) {
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
  const auto put_unit = [&](int unit, const float(&total)[kEach]) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (token_of(i) < params.tokens) {
        static_cast<T*>(params.y)[token_of(i) * params.columns + column_of(unit)] =
            from_float<T>(total[i]);
      }
    }
  };
  await_previous_kernel();
  if constexpr (!kAdapters) {
    for (int unit = share.first; unit < share.last; ++unit) {
      float total[kEach];
      await_sums(unit, total);
      put_unit(unit, total);
    }
  } else {
    if (thread == 0) {
      turn.ask(adapters);
    }
    // B is wanted once h is there, unit after unit: it should not come from memory then.
    for (int unit = share.first; unit < share.last; ++unit) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const StreamedAddition<T> addition(adapters.expand, hidden, id[i], rank[i], token_of(i),
                                           column_of(unit));
        addition.ask();
      }
    }
    // Sums that are there before h is are kept.
    const int most = min(kKept, share.last - share.first);
    int kept = 0;
    while (kept < most && !has_ended(barriers.hidden_full, 0)) {
      float total[kEach];
      await_sums(share.first + kept, total);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        kept_sums[kept * kSums + i * kTogether + thread] = total[i];
      }
      ++kept;
    }
    // B of a unit is on its way while h, or the sums of the unit before it, are awaited.
    StreamedDeltas<T, kEach> deltas = deltas_of(share.first);
    await_phase(barriers.hidden_full, 0);
    for (int unit = share.first; unit < share.last; ++unit) {
      float delta[kEach];
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        delta[i] = deltas.delta(i);
      }
      deltas = deltas_of(min(unit + 1, share.last - 1));
      float total[kEach];
      if (const int at = unit - share.first; at < kept) {
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
          total[i] = kept_sums[at * kSums + i * kTogether + thread];
        }
      } else {
        await_sums(unit, total);
      }
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        total[i] += delta[i];
      }
      put_unit(unit, total);
    }
  }
}

}  // namespace lora_bench::kernels
