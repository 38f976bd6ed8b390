#pragma once

#include <cstdint>
#include <utility>

#include "kernels/asynchronous.cuh"
#include "kernels/link.cuh"
#include "kernels/panel/panel_codes.cuh"
#include "kernels/panel/panel_plan.h"
#include "kernels/panel/panel_rows.cuh"
#include "kernels/panel/panel_tuning.h"

// A block of panel_joined, and what its warps that bring do.
namespace lora_bench::kernels {

template <int kTile>
struct PanelJoinedBlock {
  static constexpr PanelShrinkTile kShape = kPanelShrinkTiles[kTile];
  static constexpr int kRows = kShape.rows;
  static constexpr int kLanes = kShape.lanes;
  static constexpr int kDepth = kShape.depth;
  static constexpr int kPitch = 128;  // of 64 elements
  static constexpr int kStages = kShape.stages;
  static constexpr int kWarpsM = kShape.warps_of_rows;
  static constexpr int kMultiply = kWarpsM * kShape.warps_of_lanes;  // warps
  static constexpr int kBring = kShape.warps_that_bring;
  static constexpr int kThreads = 32 * (kMultiply + kBring);
  static constexpr int kRF = kRows / kWarpsM / 16;  // fragments of a warp
  static constexpr int kLF = kLanes / kShape.warps_of_lanes / 8;
  static constexpr int kFragments = kRF * kLF;
  static constexpr int kBarriers = panel_barrier_bytes(kShape);
  static constexpr int kTable = panel_table_bytes(kShape);
  static constexpr int kPlane = (kRows + kLanes) * kPitch;  // of 64 elements
  static constexpr int kStageBytes = kDepth / 64 * kPlane;
  static constexpr int kRing = kStages * kStageBytes;
  static_assert(kRows % (16 * kWarpsM) == 0 && kLanes % (8 * kShape.warps_of_lanes) == 0);
  static_assert(kDepth % 64 == 0, "two times 32 elements, of which one is loaded early");
  static constexpr bool kLanesFirst = kRows < 64;  // are the 64 that a group of warps multiplies
  static constexpr bool kMayGroup =
      kLanesFirst ? kLanes == 64 && kMultiply == 4 : kWarpsM == 4 && kRF == 1;
  static constexpr int kWide = kLanesFirst ? kRows : 8 * kLF;  // and so many of the others
  static_assert(!kMayGroup || kWide == 8 * kFragments);
  static_assert(kTable % 1024 == 0 && kPlane % 1024 == 0);
  static_assert(kFragments * kMultiply % kChains == 0, "each block of a cluster adds as many");
};

// What a warp multiplies at a time: 32 elements of K.
template <typename S>
struct PanelOperands {
  uint4 x[S::kRF][2];  // of 16 elements each
  uint4 a[S::kLF];
};

// Where a block is, and what all its warps know.
struct PanelJoinedTile {
  Segment segment;
  int rank = 0;
  int first_lane = 0;
  int lanes = 0;
  int first = 0;  // element of K, of the chain
  int end = 0;    // of the chain; K may end before
  int steps = 0;  // stages in all
};

// Copies of 16 bytes by the warps that bring, `thread` of them: chunk thread % kChunks of rows
// thread / kChunks, and so on; rows of x, then lanes of A. Rows and lanes that are not there hold
// what lies there, and leave the block in no sum of one that is.
template <typename S, typename T, typename W>
__device__ inline void bring_panel(const ShrinkParams& params, const PanelJoinedTile& tile,
                                   const std::int32_t* tokens, int thread, unsigned char* stages,
                                   std::uint32_t full, std::uint32_t read,
                                   const PanelShrinkPlanOf<W>& plan) {
  constexpr bool kEight = kOfEightBits<W>;
  constexpr int kBytes = static_cast<int>(sizeof(W));
  constexpr int kChunks = S::kDepth / 8;
  constexpr int kRowsATime = S::kBring * 32 / kChunks;
  constexpr int kX = S::kRows / kRowsATime;
  constexpr int kAll = kX + S::kLanes / kRowsATime;
  static_assert(S::kRows % kRowsATime == 0 && S::kLanes % kRowsATime == 0 && kRowsATime % 8 == 0);
  const int own_row = thread / kChunks;
  const int own_chunk = thread % kChunks;
  const char* from[kAll];
#pragma unroll
  for (int i = 0; i < kX; ++i) {
    from[i] = static_cast<const char*>(params.x) +
              row_of_x(params, tokens[own_row + i * kRowsATime]) * (params.x_stride * 2) +
              own_chunk * 16;
  }
#pragma unroll
  for (int i = kX; i < kAll; ++i) {
    const int lane = tile.first_lane + min(own_row + (i - kX) * kRowsATime, tile.lanes - 1);
    const int slice = lane / tile.rank;
    from[i] = static_cast<const char*>(params.a[slice]) +
              (tile.segment.adapter * params.max_rank + (lane - slice * tile.rank)) *
                  (params.in_features * kBytes) +
              own_chunk * (8 * kBytes);
  }
  const int limit = min(tile.end, static_cast<int>(params.in_features));
  const int place_in_stage =
      own_chunk / 8 * S::kPlane + own_row * S::kPitch + ((own_chunk % 8 ^ own_row % 8) * 16);
  const std::uint32_t own_place = shared_address(stages) + place_in_stage;
  int at = tile.first;
  const auto bring = [&]<int kFirst, int kEnd>(std::uint32_t place) {
    const std::int64_t offset = std::int64_t{at} * 2;
    const auto copy = [&](int i, const char* of, int bytes) {
      const std::uint32_t to = place + i * kRowsATime * S::kPitch;
      if (kEight && i >= kX) {
        copy_weights<W>(to, of, bytes);
      } else {
        copy_sixteen(to, of, bytes);
      }
    };
    const auto offset_of = [&](int i) { return kEight && i >= kX ? offset / 2 : offset; };
    if (at + S::kDepth <= limit) {
#pragma unroll
      for (int i = kFirst; i < kEnd; ++i) {
        const int there =
            i < kX ? tile.segment.rows - i * kRowsATime : tile.lanes - (i - kX) * kRowsATime;
        if (there > 0) {
          if constexpr (kEight) {
            copy(i, from[i] + offset_of(i), 16);
          } else {
            copy_sixteen(place + i * kRowsATime * S::kPitch, from[i] + offset);
          }
        }
      }
    } else {  // zeros where the chain or K has ended
      const int bytes = at + own_chunk * 8 < limit ? 16 : 0;
#pragma unroll
      for (int i = kFirst; i < kEnd; ++i) {
        copy(i, bytes != 0 ? from[i] + offset_of(i) : from[i], bytes);
      }
    }
  };
  const auto widen = [&](int of) {
    if constexpr (kEight) {
      unsigned char* const own = stages + of * S::kStageBytes + place_in_stage;
      widen_in_place<T, kAll - kX>(plan.e5m2,
                                   [&](int i) { return own + (kX + i) * kRowsATime * S::kPitch; });
    }
  };
  const int early = min(tile.steps, S::kStages);
  std::uint32_t place = own_place;
#pragma unroll 1
  for (int step = 0; step < early; ++step) {
    bring.template operator()<kX, kAll>(place);
    place += S::kStageBytes;
    at += S::kDepth;
  }
  if constexpr (kEight) {
    close_copies();
  }
  await_previous_kernel();
  let_next_kernel_start();
  at = tile.first;
  place = own_place;
#pragma unroll 1
  for (int step = 0; step < early; ++step) {
    bring.template operator()<0, kX>(place);
    if constexpr (kEight) {
      close_copies();
    } else {
      arrive_with_copies(full + step * 8);
    }
    place += S::kStageBytes;
    at += S::kDepth;
  }
  if constexpr (kEight) {
#pragma unroll 1
    for (int step = early; step < S::kStages; ++step) {
      close_copies();  // of nothing, so that as many follow the group of A
    }
    await_copies<S::kStages>();
#pragma unroll 1
    for (int step = 0; step < early; ++step) {
      widen(step);
    }
    [&]<int... kStep>(std::integer_sequence<int, kStep...>) {
      const auto deliver = [&]<int kEach>() {
        if (kEach < early) {
          await_copies<S::kStages - 1 - kEach>();
          arrive(full + kEach * 8);
        }
      };
      (deliver.template operator()<kStep>(), ...);
    }
    (std::make_integer_sequence<int, S::kStages>{});
  }
  StagesToWiden<S::kStages> to_widen;
  int stage = 0;
  unsigned parity = 0;
  place = own_place;
#pragma unroll 1
  for (int step = S::kStages; step < tile.steps; ++step) {
    await_phase(read + stage * 8, parity);
    bring.template operator()<0, kAll>(place);
    if constexpr (kEight) {
      to_widen.add(full, widen);
    } else {
      arrive_with_copies(full + stage * 8);
    }
    at += S::kDepth;
    place += S::kStageBytes;
    if (++stage == S::kStages) {
      stage = 0;
      parity ^= 1;
      place = own_place;
    }
  }
  if constexpr (kEight) {
    to_widen.end(full, widen);
  }
  await_own_copies();
}

}  // namespace lora_bench::kernels
