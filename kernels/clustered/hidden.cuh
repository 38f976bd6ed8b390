#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/chains.cuh"
#include "kernels/chains.h"
#include "kernels/clustered/clustered_tuning.h"
#include "kernels/segment/fragments.cuh"
#include "kernels/segment/vectors.cuh"

// h as fragments in shared memory, and what becomes of it.
namespace lora_bench::kernels {

template <typename V>
__device__ inline V load_shared(const char* at) {
  return *reinterpret_cast<const V*>(at);
}

// The first `left` of 32 elements as load_matrices gives them, eight in each number; zeros for the
// others. A multiple of 8, which may be none or all.
__device__ inline void keep_elements(uint4& of, int left) {
  of.x = left > 0 ? of.x : 0;
  of.y = left > 8 ? of.y : 0;
  of.z = left > 16 ? of.z : 0;
  of.w = left > 24 ? of.w : 0;
}

// What a thread has of a row's 32 elements, in their natural order: four of each 16.
__device__ inline uint4 load_fours(const char* at) {
  const auto first = load_shared<uint2>(at);
  const auto second = load_shared<uint2>(at + 32);
  return {first.x, first.y, second.x, second.y};
}
// The same where `left` elements are there from its own first on; zeros for what is not.
__device__ inline void keep_fours(uint4& of, int left) {
  if (left <= 0) {
    of.x = of.y = 0;
  }
  if (left <= 16) {
    of.z = of.w = 0;
  }
}

// Four lanes of a row: the sums of all chains, `bytes` from one to the next, added.
__device__ inline float4 add_chains(const char* from, int bytes) {
  float4 chain[kChains];
#pragma unroll
  for (int c = 0; c < kChains; ++c) {
    chain[c] = load_shared<float4>(from + c * bytes);
  }
  return add_in_pairs(chain);
}

// The upper eight rows are zeros.
template <typename T, typename H>
__device__ inline HiddenFragment<T, H> fragment_of(const float4& whole) {
  HiddenFragment<T, H> fragment;
  if constexpr (sizeof(H) == sizeof(float)) {
    fragment.load(whole, float4{});
  } else {
    const auto two = [](float low, float high) {
      return bits_of(from_float<H>(low)) | bits_of(from_float<H>(high)) << 16;
    };
    fragment.load({two(whole.x, whole.y), two(whole.z, whole.w)}, uint2{});
  }
  return fragment;
}

// The first `left` of four lanes, which may be none or all; zeros for the others.
template <int kTiles>
__device__ inline void keep_lanes(uint2 (&b)[kTiles], int left) {
  const unsigned low = left >= 2 ? 0xFFFFFFFFU : left == 1 ? 0xFFFFU : 0U;
  const unsigned high = left >= 4 ? 0xFFFFFFFFU : left == 3 ? 0xFFFFU : 0U;
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    b[j].x &= low;
    b[j].y &= high;
  }
}

// A fragment of h as vectors in the order of the registers that an instruction takes, and back.
template <typename T>
__device__ inline void to_vectors(const HiddenFragment<T, T>& of, uint4 (&to)[1]) {
  to[0] = {of.row[0].x, of.row[1].x, of.row[0].y, of.row[1].y};
}
template <typename T>
__device__ inline void from_vectors(const uint4 (&from)[1], HiddenFragment<T, T>& to) {
  to.row[0] = {from[0].x, from[0].z};
  to.row[1] = {from[0].y, from[0].w};
}
__device__ inline void to_vectors(const HiddenFragment<__nv_bfloat16, float>& of, uint4 (&to)[3]) {
#pragma unroll
  for (int p = 0; p < 3; ++p) {
    to[p] = {of.part[p][0].x, of.part[p][1].x, of.part[p][0].y, of.part[p][1].y};
  }
}
__device__ inline void from_vectors(const uint4 (&from)[3],
                                    HiddenFragment<__nv_bfloat16, float>& to) {
#pragma unroll
  for (int p = 0; p < 3; ++p) {
    to.part[p][0] = {from[p].x, from[p].z};
    to.part[p][1] = {from[p].y, from[p].w};
  }
}
__device__ inline void to_vectors(const HiddenFragment<__half, float>& of, uint4 (&to)[6]) {
#pragma unroll
  for (int p = 0; p < 3; ++p) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      to[2 * p + i] = {of.part[p][0][2 * i], of.part[p][1][2 * i], of.part[p][0][2 * i + 1],
                       of.part[p][1][2 * i + 1]};
    }
  }
}
__device__ inline void from_vectors(const uint4 (&from)[6], HiddenFragment<__half, float>& to) {
#pragma unroll
  for (int p = 0; p < 3; ++p) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      to.part[p][0][2 * i] = from[2 * p + i].x;
      to.part[p][1][2 * i] = from[2 * p + i].y;
      to.part[p][0][2 * i + 1] = from[2 * p + i].z;
      to.part[p][1][2 * i + 1] = from[2 * p + i].w;
    }
  }
}

// The fragment `task` of those that lie from `hidden` on; `rows` is the one that was read last.
template <typename T, typename H>
__device__ inline void take_rows(const char* hidden, int task, int lane, HiddenFragment<T, H>& rows,
                                 int& task_of_rows) {
  constexpr int kVectors = static_cast<int>(sizeof(HiddenFragment<T, H>) / 16);
  if (task != task_of_rows) {
    uint4 vectors[kVectors];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      vectors[v] = reinterpret_cast<const uint4*>(hidden)[(task * kVectors + v) * 32 + lane];
    }
    from_vectors(vectors, rows);
    task_of_rows = task;
  }
}

// The same sums as HiddenFragment::multiply, column by column; parts outside, so that neighbouring
// instructions do not wait for one another.
template <typename T, typename H, int kTiles>
__device__ inline void multiply_columns(const HiddenFragment<T, H>& rows, float (&sum)[kTiles][4],
                                        const uint2 (&b)[kTiles]) {
  if constexpr (std::is_same_v<T, __nv_bfloat16> && std::is_same_v<H, float>) {
#pragma unroll
    for (int p = 2; p >= 0; --p) {
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        multiply_16<T>(sum[j], rows.part[p][0].x, rows.part[p][1].x, rows.part[p][0].y,
                       rows.part[p][1].y, b[j].x, b[j].y);
      }
    }
  } else {
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      rows.multiply(sum[j], b[j]);
    }
  }
}

// Four or eight neighbouring columns of a row of y.
template <typename T>
__device__ inline uint2 sum_of(const uint2& before, bool add_inputs, const float* delta) {
  const float2 low = floats_of<T>(before.x);
  const float2 high = floats_of<T>(before.y);
  const float inputs[4] = {low.x, low.y, high.x, high.y};
  alignas(8) T after[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    after[i] = from_float<T>(add_inputs ? __fadd_rn(delta[i], inputs[i]) : delta[i]);
  }
  return *reinterpret_cast<const uint2*>(after);
}
template <typename T>
__device__ inline uint4 sum_of(const uint4& before, bool add_inputs, const float* delta) {
  float inputs[8];
  unpack<T>(before, inputs);
  alignas(16) T after[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    after[i] = from_float<T>(add_inputs ? __fadd_rn(delta[i], inputs[i]) : delta[i]);
  }
  return *reinterpret_cast<const uint4*>(after);
}

// The neighbouring columns of y that a thread has of a unit of 8 * kTiles.
template <int kTiles>
struct ColumnsOfThread {
  uint4 vectors[kTiles / 4];

  __device__ void load(const char* at) {
#pragma unroll
    for (int v = 0; v < kTiles / 4; ++v) {
      vectors[v] = load_shared<uint4>(at + 16 * v);
    }
  }

  // `left` columns are in the slice, whole vectors.
  template <typename T>
  __device__ static void add_bias(const T* bias, int left, float (&delta)[2 * kTiles]) {
#pragma unroll
    for (int c = 0; c < 2 * kTiles; ++c) {
      if (c < left) {
        delta[c] = __fadd_rn(delta[c], to_float(bias[c]));
      }
    }
  }
  template <typename T>
  __device__ void store(T* to, int left, bool add_inputs, const float* delta) const {
    uint4 sums[kTiles / 4];
#pragma unroll
    for (int v = 0; v < kTiles / 4; ++v) {
      sums[v] = sum_of<T>(vectors[v], add_inputs, delta + 8 * v);
    }
#pragma unroll
    for (int v = 0; v < kTiles / 4; ++v) {
      if (left >= 8 * v + 8) {  // stores alone are conditional
        reinterpret_cast<uint4*>(to)[v] = sums[v];
      }
    }
  }
};

}  // namespace lora_bench::kernels
