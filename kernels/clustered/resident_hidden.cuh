#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/asynchronous.cuh"
#include "kernels/chains.cuh"
#include "kernels/chains.h"
#include "kernels/clustered/resident_plan.h"
#include "kernels/segment/fragments.cuh"
#include "kernels/segment/vectors.cuh"

// The way from sums of chains to h in `resident`, and h in shared memory as it multiplies it:
// weights are the sixteen rows of an instruction, rows of h its eight columns. Products and sums
// are those of HiddenFragment.
namespace lora_bench::kernels {

// Planes of 16 lanes by `rows`, a plane a part.
template <typename T, typename H>
struct HiddenPlanes {
  static constexpr bool kSplit = !std::is_same_v<T, H>;
  static constexpr int kParts = kSplit ? 3 : 1;
  using Part =
      std::conditional_t<kSplit && std::is_same_v<T, __half>, std::uint32_t, std::uint16_t>;
  using Four = std::conditional_t<sizeof(Part) == 4, uint4, uint2>;  // neighbouring lanes
  static constexpr int kBytes = 16 * sizeof(Part);                   // of a row of a plane

  // `plane`: bytes from one part to the next.
  __device__ static void store(char* to, int plane, float value) {
    if constexpr (!kSplit) {
      *reinterpret_cast<std::uint16_t*>(to) =
          static_cast<std::uint16_t>(bits_of(from_float<H>(value)));
    } else if constexpr (sizeof(Part) == 2) {
      std::uint32_t parts[3];
      split_in_three<0xFFFF0000U>(value, parts);
#pragma unroll
      for (int p = 0; p < 3; ++p) {
        *reinterpret_cast<std::uint16_t*>(to + p * plane) =
            static_cast<std::uint16_t>(parts[p] >> 16);
      }
    } else {
      std::uint32_t parts[3];
      split_in_three<0xFFFFE000U>(value, parts);
#pragma unroll
      for (int p = 0; p < 3; ++p) {
        *reinterpret_cast<std::uint32_t*>(to + p * plane) = parts[p];
      }
    }
  }

  // Two columns of weights, four lanes each, times a part of eight rows.
  __device__ static void multiply(float (&sum)[4], const uint2& first, const uint2& second,
                                  const Four& h) {
    if constexpr (sizeof(Part) == 2) {
      multiply_16<T>(sum, first.x, second.x, first.y, second.y, h.x, h.y);
    } else {
      const float2 low[2] = {floats_of<__half>(first.x), floats_of<__half>(second.x)};
      const float2 high[2] = {floats_of<__half>(first.y), floats_of<__half>(second.y)};
      multiply_tf32(sum, __float_as_uint(low[0].x), __float_as_uint(low[1].x),
                    __float_as_uint(low[0].y), __float_as_uint(low[1].y), h.x, h.y);
      multiply_tf32(sum, __float_as_uint(high[0].x), __float_as_uint(high[1].x),
                    __float_as_uint(high[0].y), __float_as_uint(high[1].y), h.z, h.w);
    }
  }
};

// Worked out here: the compiler would rather do it just before it is needed, which is behind a
// wait.
template <typename Value>
__device__ inline void settle(Value& value) {
  if constexpr (sizeof(Value) == 8) {
    asm volatile("" : "+l"(value));
  } else if constexpr (std::is_same_v<Value, float>) {
    asm volatile("" : "+f"(value));
  } else {
    asm volatile("" : "+r"(value));
  }
}
template <typename... Values>
__device__ inline void settle(Values&... values) {
  (settle(values), ...);
}

// The sums of a chain, of 16 lanes, to the blocks of the cluster: a row at a time, quad g to blocks
// g and g + 8, whose memory begins at `to`, with their barrier. Blocks have those of row 0 from
// `first` on; of what thread t has there are none where `four` is 0.
template <int kEights>
__device__ inline void send_sums(const ResidentPlan& plan, float (&sum)[2][4], int rows, int g,
                                 int t, const std::uint32_t (&to)[2], int first, int four) {
  if (t >= 2) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float of_first = sum[0][i];
      sum[0][i] = sum[1][i];
      sum[1][i] = of_first;
    }
  }
#pragma unroll
  for (int n = 0; n < kEights; ++n) {
#pragma unroll 1
    for (int row = 0; row < min(rows - 8 * n, 8); ++row) {
      const int from = 4 * row + t;
      const float4 lanes = {__shfl_sync(0xFFFFFFFFU, sum[0][2 * n], from),
                            __shfl_sync(0xFFFFFFFFU, sum[0][2 * n + 1], from),
                            __shfl_sync(0xFFFFFFFFU, sum[1][2 * n], from),
                            __shfl_sync(0xFFFFFFFFU, sum[1][2 * n + 1], from)};
      const int at = first + (8 * n + row) * plan.sums_pitch * 4;
#pragma unroll
      for (int d = 0; d < 2; ++d) {
        if (four != 0 && g + 8 * d < plan.cluster) {
          send_four(to[d] + at, lanes, to[d]);
        }
      }
    }
  }
}

// One lane of a row: the sums of all chains, `bytes` from one to the next, added.
__device__ inline float add_chains_of_lane(const char* from, int bytes) {
  float chain[kChains];
#pragma unroll
  for (int c = 0; c < kChains; ++c) {
    chain[c] = *reinterpret_cast<const float*>(from + c * bytes);
  }
  return add_in_pairs(chain);
}

}  // namespace lora_bench::kernels
