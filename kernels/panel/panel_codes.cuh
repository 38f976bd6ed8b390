#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/asynchronous.cuh"
#include "kernels/panel/panel_plan.h"
#include "kernels/params.h"
#include "kernels/segment/codes.cuh"

// Weights of eight bits in a panel. A copy brings eight codes to the first half of the 16 bytes
// that they become. When they have come, the thread that copied them widens them there. Products
// find what they find beside weights of 16 bits.
namespace lora_bench::kernels {

template <typename W>
constexpr bool kOfEightBits = std::is_same_v<W, EightBits>;
template <typename W>
using PanelShrinkPlanOf =
    std::conditional_t<kOfEightBits<W>, PanelShrinkEightPlan, PanelShrinkPlan>;
template <typename W>
using PanelExpandPlanOf =
    std::conditional_t<kOfEightBits<W>, PanelExpandEightPlan, PanelExpandPlan>;

// Eight weights to the 16 bytes at `to`: all of them, or the first `bytes` of 16.
template <typename W>
__device__ inline void copy_weights(std::uint32_t to, const char* from, int bytes) {
  if constexpr (kOfEightBits<W>) {
    copy_eight(to, from, bytes / 2);
  } else {
    copy_sixteen(to, from, bytes);
  }
}
template <typename W>
__device__ inline void copy_weights(std::uint32_t to, const char* from) {
  if constexpr (kOfEightBits<W>) {
    copy_eight(to, from, 8);
  } else {
    copy_sixteen(to, from);
  }
}

template <typename T, bool kE5m2, int kCount, typename PlaceOf>
__device__ inline void widen_in_place_as(const PlaceOf& place_of) {
  constexpr int kTogether = kCount % 4 == 0 ? 4 : kCount % 3 == 0 ? 3 : kCount % 2 == 0 ? 2 : 1;
#pragma unroll
  for (int first = 0; first < kCount; first += kTogether) {
    uint2 codes[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      codes[i] = *reinterpret_cast<const uint2*>(place_of(first + i));
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const uint2 low = widen_four<T, kE5m2>(codes[i].x);
      const uint2 high = widen_four<T, kE5m2>(codes[i].y);
      *reinterpret_cast<uint4*>(place_of(first + i)) = {low.x, low.y, high.x, high.y};
    }
  }
}
// What this thread copied and awaited: place_of(i) is where eight codes lie, or what was there
// before where none were copied; nobody multiplies that.
template <typename T, int kCount, typename PlaceOf>
__device__ inline void widen_in_place(bool e5m2, const PlaceOf& place_of) {
  if (e5m2) {
    widen_in_place_as<T, true, kCount>(place_of);
  } else {
    widen_in_place_as<T, false, kCount>(place_of);
  }
}

// Stages that a thread has copied, and that others read once it has widened them. It does so as
// late as it may, so that copies of as many stages as possible run meanwhile: a stage is given back
// while the next one is read, which leaves two that have to be widened before another is asked for.
template <int kStages>
struct StagesToWiden {
  static constexpr int kBehind = kStages - 2;
  int asked = 0;
  RingPlace<kStages> turn{0};

  template <typename Widen>
  __device__ void deliver(std::uint32_t full, const Widen& widen) {
    widen(turn.at);
    arrive(full + turn.at * 8);
    turn.next();
  }
  // The copies of a stage have been asked for.
  template <typename Widen>
  __device__ void add(std::uint32_t full, const Widen& widen) {
    close_copies();
    if (asked < kBehind) {
      ++asked;
      return;
    }
    await_copies<kBehind>();
    deliver(full, widen);
  }
  template <typename Widen>
  __device__ void end(std::uint32_t full, const Widen& widen) {
    await_own_copies();
#pragma unroll 1
    for (; asked > 0; --asked) {
      deliver(full, widen);
    }
  }
};

// What sums over K are multiplied by, four lanes of a slice at a time.
struct NoLaneScales {
  __device__ float4 operator()(int, const float4& sums) const { return sums; }
};
struct ScalesOfLanes {
  const float* of;  // of lane 0, or of all
  bool each;
  __device__ float4 operator()(int lane, const float4& sums) const {
    float4 by;
    if (each) {
      by = __ldg(reinterpret_cast<const float4*>(of + lane));
    } else {
      const float all = __ldg(of);
      by = {all, all, all, all};
    }
    return {__fmul_rn(by.x, sums.x), __fmul_rn(by.y, sums.y), __fmul_rn(by.z, sums.z),
            __fmul_rn(by.w, sums.w)};
  }
};
__device__ inline NoLaneScales scales_of_lanes(const PanelExpandPlan&, int, std::int64_t,
                                               std::int64_t) {
  return {};
}
__device__ inline ScalesOfLanes scales_of_lanes(const PanelExpandEightPlan& plan, int slice,
                                                std::int64_t adapter, std::int64_t max_rank) {
  const bool each = plan.scales.of_rows;
  return {plan.scales.a[slice] + (each ? adapter * max_rank : adapter), each};
}

// What sums over the rank are multiplied by: of runs of eight columns, 32 columns apart, that a
// thread has of a row.
template <int kRuns>
struct NoColumnScales {
  __device__ void load(const PanelExpandPlan&, int, std::int64_t, int, int) {}
  __device__ float operator()(int, int, float sum) const { return sum; }
};
template <int kRuns>
struct ColumnScales {
  float of[kRuns][8];
  // Of a slice that is `width` columns wide, from `column` on.
  __device__ void load(const PanelExpandEightPlan& plan, int slice, std::int64_t adapter, int width,
                       int column) {
    const float* const scales = plan.scales.b[slice];
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      const int first = column + 32 * run;
      float4 low = {};
      float4 high = {};
      if (!plan.scales.of_rows) {
        const float all = __ldg(scales + adapter);
        low = high = {all, all, all, all};
      } else if (first < width) {
        const auto* const at = reinterpret_cast<const float4*>(scales + adapter * width + first);
        low = __ldg(at);
        high = __ldg(at + 1);
      }
      of[run][0] = low.x;
      of[run][1] = low.y;
      of[run][2] = low.z;
      of[run][3] = low.w;
      of[run][4] = high.x;
      of[run][5] = high.y;
      of[run][6] = high.z;
      of[run][7] = high.w;
    }
  }
  __device__ float operator()(int run, int column, float sum) const {
    return __fmul_rn(of[run][column], sum);
  }
};
template <typename W, int kRuns>
using ColumnScalesOf =
    std::conditional_t<kOfEightBits<W>, ColumnScales<kRuns>, NoColumnScales<kRuns>>;

}  // namespace lora_bench::kernels
