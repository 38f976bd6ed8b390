#pragma once

#include <type_traits>

#include "kernels/paired/copies.cuh"
#include "kernels/paired/link.cuh"
#include "kernels/paired/paired_plan.h"
#include "kernels/paired/paired_tuning.h"
#include "kernels/segment/fragments.cuh"
#include "kernels/segment/segment.cuh"
#include "kernels/segment/vectors.cuh"

// expand of the pair.
//   grid      (row tiles) x (column tiles), the last fastest: they share h in the L2
//   block     4 warps, each by itself: 16 rows (kRows 1) or two by two 32 rows (kRows 2), 64
//   columns
//             at a time until the column tile is done
//   memory    B, and y with the last step of its columns, come in the background, each thread what
//   it
//             will use itself, into places of its own in shared memory; so does h, once
//   start     before shrink has ended: a warp brings its first B and y, which no shrink writes,
//   then
//             waits, then reads h; no barrier of the block anywhere
//   order     parts of K of h in ascending order, then the rank in steps of 16
//   bytes     B x row tiles and h x column tiles, all but the first from the L2; y once each way
//   bound     memory
namespace lora_bench::kernels {

// Loads that the compiler keeps behind await_previous_kernel: another kernel wrote these.
__device__ inline float4 load_published(const float* at) {
  float4 value;
  asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "l"(at)
               : "memory");
  return value;
}

__device__ inline float load_published_one(const float* at) {
  float value;
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(value) : "l"(at) : "memory");
  return value;
}

template <bool kVectors>
__device__ inline float4 load_sums(const float* row, int at, int end) {
  if (kVectors && at + 4 <= end) {
    return load_published(row + at);
  }
  return {at < end ? load_published_one(row + at) : 0.0F,
          at + 1 < end ? load_published_one(row + at + 1) : 0.0F,
          at + 2 < end ? load_published_one(row + at + 2) : 0.0F,
          at + 3 < end ? load_published_one(row + at + 3) : 0.0F};
}

// Four lanes of h of each of kCount rows, every one kParts parts, all on their way before the first
// is added.
template <bool kVectors, int kParts, int kCount>
__device__ inline void add_parts(const float* const (&row)[kCount], std::int64_t elements, int at,
                                 int end, float scale, float4 (&whole)[kCount]) {
  float4 part[kCount][kParts];
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      part[i][p] = load_sums<kVectors>(row[i] + p * elements, at, end);
    }
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    float4 sum = part[i][0];
#pragma unroll
    for (int p = 1; p < kParts; ++p) {
      sum = {sum.x + part[i][p].x, sum.y + part[i][p].y, sum.z + part[i][p].z,
             sum.w + part[i][p].w};
    }
    whole[i] = {scale * sum.x, scale * sum.y, scale * sum.z, scale * sum.w};
  }
}

template <bool kVectors, int kCount>
__device__ inline void whole_sums(const float* const (&row)[kCount], const PairedExpandPlan& plan,
                                  int at, int end, float scale, float4 (&whole)[kCount]) {
  static_assert(kMostPairedGroups == 4);
  switch (plan.parts) {
    case 1:
      add_parts<kVectors, 1>(row, plan.elements, at, end, scale, whole);
      break;
    case 2:
      add_parts<kVectors, 2>(row, plan.elements, at, end, scale, whole);
      break;
    case 3:
      add_parts<kVectors, 3>(row, plan.elements, at, end, scale, whole);
      break;
    default:
      add_parts<kVectors, 4>(row, plan.elements, at, end, scale, whole);
  }
}

template <typename T>
__device__ inline uint2 rounded(const float4& value) {
  return {bits_of(from_float<T>(value.x)) | bits_of(from_float<T>(value.y)) << 16,
          bits_of(from_float<T>(value.z)) | bits_of(from_float<T>(value.w)) << 16};
}

// Sixteen neighbouring columns of one row of y, and what they were before.
template <typename T>
__device__ inline void store_whole(T* y, const uint4 (&before)[2], bool add_inputs,
                                   const float (&delta)[16]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float inputs[8];
    unpack<T>(before[half], inputs);
    alignas(16) T after[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float value = delta[8 * half + i];
      after[i] = from_float<T>(add_inputs ? value + inputs[i] : value);
    }
    reinterpret_cast<uint4*>(y)[half] = *reinterpret_cast<const uint4*>(after);
  }
}

// The first `end` of them.
template <typename T>
__device__ inline void store_some(T* y, int end, bool add_inputs, const float (&delta)[16]) {
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    if (i < end) {
      y[i] = from_float<T>(add_inputs ? delta[i] + to_float(y[i]) : delta[i]);
    }
  }
}

// Four lanes of a row of B into `slot`, zeros where there are none.
template <bool kVectors, typename T>
__device__ inline void bring_four(uint2* slot, const T* row, int at, int end, bool wanted) {
  if constexpr (kVectors) {
    const int left = wanted ? end - at : 0;
    const int bytes = left >= 4 ? 8 : left > 0 ? left * static_cast<int>(sizeof(T)) : 0;
    const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(slot));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(address),
                 "l"(bytes > 0 ? row + at : row), "r"(bytes)
                 : "memory");
  } else {
    *slot = wanted ? load_four<false>(row, at, end) : uint2{};
  }
}

// 16 bytes of y that are there.
__device__ inline void bring_vector(uint4* slot, const void* from) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(slot));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
}

template <typename T, typename H, bool kSums, bool kVectors, int kRows>
__global__ void __launch_bounds__(kPairedExpandThreads)
    paired_expand(const __grid_constant__ ExpandParams params,
                  const __grid_constant__ PairedExpandPlan plan) {
  using Hidden = std::conditional_t<sizeof(H) == sizeof(float), float4, uint2>;  // of four lanes
  constexpr int kThreads = kPairedExpandThreads;
  constexpr int kTiles = 8;  // times 8 columns
  constexpr int kStages = kPairedExpandStages;
  constexpr int kBlockRows = kRows == 1 ? 16 : 64;
  constexpr int kWarpsN = kRows == 1 ? 4 : 2;
  constexpr int kStageBytes = kThreads * (kPairedBytesOfB + kRows * kPairedBytesOfY);
  extern __shared__ uint4 shared[];
  const Segment segment = find_segment(params, blockIdx.x / plan.column_tiles, kBlockRows);
  const int rank = segment.rows > 0 ? params.rank[segment.adapter] : 0;
  if (rank == 0) {
    return;
  }
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int g = thread % 32 / 4;
  const int t = thread % 4;
  const ColumnTile tile =
      column_tile(params, blockIdx.x % plan.column_tiles, plan.columns_per_tile);
  const std::int64_t width = params.width[tile.slice];
  const std::int64_t tile_end =
      tile.first + plan.columns_per_tile < width ? tile.first + plan.columns_per_tile : width;
  const int first_row = kRows == 1 ? 0 : warp % 2 * 32;
  const std::int64_t first_column = tile.first + (kRows == 1 ? warp : warp / 2) * 64;
  if (first_row >= segment.rows || first_column >= tile_end) {
    return;  // the whole warp
  }
  const int steps = (rank + 15) / 16;
  const int turns = static_cast<int>((tile_end - first_column + 64 * kWarpsN - 1) / (64 * kWarpsN));

  std::int32_t token[2 * kRows] = {};
#pragma unroll
  for (int i = 0; i < 2 * kRows; ++i) {
    token[i] = static_cast<std::int32_t>(token_of(params, segment, first_row + g + 8 * i));
  }
  const auto y_of = [&](int i, std::int64_t column) {
    return static_cast<T*>(params.y) + token[i] * params.y_stride + tile.slice_start + column;
  };
  // Fragment column 2 * t + c of tile j is column 16 * t + 2 * j + c of a turn.
  const T* b = static_cast<const T*>(params.b[tile.slice]) +
               (segment.adapter * width + first_column + g / 2 * 16 + g % 2) * params.max_rank;
  const std::int64_t turn_of_b = 64 * kWarpsN * params.max_rank;
  const auto bring = [&](int unit) {
    if (unit < turns * steps) {
      const int turn = unit / steps;
      const int step = unit % steps;
      char* stage = reinterpret_cast<char*>(shared) + unit % kStages * kStageBytes;
      const std::int64_t own =
          width - (first_column + turn * (64 * kWarpsN) + g / 2 * 16 + g % 2);  // columns from ours
      auto* slot = reinterpret_cast<uint2*>(stage) + thread;
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        bring_four<kVectors>(slot + j * kThreads, b + turn * turn_of_b + 2 * j * params.max_rank,
                             16 * step + t * 4, rank, 2 * j < own);
      }
      const std::int64_t column = first_column + turn * (64 * kWarpsN) + 16 * t;
      if (step == steps - 1 && plan.vector_y && params.add_inputs && column + 16 <= width) {
        auto* before = reinterpret_cast<uint4*>(stage + kThreads * kPairedBytesOfB) + thread;
#pragma unroll
        for (int i = 0; i < 2 * kRows; ++i) {
          if (first_row + g + 8 * i < segment.rows) {
            const auto* vectors = reinterpret_cast<const uint4*>(y_of(i, column));
            bring_vector(before + 2 * i * kThreads, vectors);
            bring_vector(before + (2 * i + 1) * kThreads, vectors + 1);
          }
        }
      }
    }
    close_brought();
  };
#pragma unroll 1
  for (int unit = 0; unit < kStages - 1; ++unit) {
    bring(unit);
  }
  const float shrink_scale = plan.scale == nullptr ? 1.0F : plan.scale[segment.adapter];
  const float scale = params.scale == nullptr ? 1.0F : params.scale[segment.adapter];

  await_previous_kernel();
  const auto load_hidden = [&](int step, Hidden(&to)[2 * kRows]) {
    const int at = 16 * step + t * 4;
    const auto element = [&](int i) {
      return (tile.slice * params.tokens + token[i]) * params.max_rank;
    };
    if constexpr (kSums) {
      const float* row[2 * kRows];
      float4 whole[2 * kRows];
#pragma unroll
      for (int i = 0; i < 2 * kRows; ++i) {
        row[i] = plan.sums + element(i);
      }
      whole_sums<kVectors>(row, plan, at, rank, shrink_scale, whole);
#pragma unroll
      for (int i = 0; i < 2 * kRows; ++i) {
        if constexpr (sizeof(H) == sizeof(float)) {
          to[i] = whole[i];
        } else {
          to[i] = rounded<H>(whole[i]);
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < 2 * kRows; ++i) {
        to[i] = load_four<kVectors>(static_cast<const H*>(params.h) + element(i), at, rank);
      }
    }
  };
  auto* held = reinterpret_cast<Hidden*>(reinterpret_cast<char*>(shared) + kStages * kStageBytes);
  if (plan.holds_h) {
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      Hidden hidden[2 * kRows];
      load_hidden(step, hidden);
#pragma unroll
      for (int i = 0; i < 2 * kRows; ++i) {
        held[(step * 2 * kRows + i) * kThreads + thread] = hidden[i];
      }
    }
  }

  float sum[kRows][kTiles][4] = {};
  int turn = 0;
  int step = 0;
#pragma unroll 1
  for (int unit = 0; turn < turns; ++unit) {
    await_brought<kStages - 2>();
    const char* stage = reinterpret_cast<const char*>(shared) + unit % kStages * kStageBytes;
    bring(unit + kStages - 1);  // into what this thread has used a unit ago
    Hidden hidden[2 * kRows];
    if (plan.holds_h) {
#pragma unroll
      for (int i = 0; i < 2 * kRows; ++i) {
        hidden[i] = held[(step * 2 * kRows + i) * kThreads + thread];
      }
    } else {
      load_hidden(step, hidden);
    }
    HiddenFragment<T, H> rows[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      rows[i].load(hidden[2 * i], hidden[2 * i + 1]);
    }
    const auto* lanes = reinterpret_cast<const uint2*>(stage) + thread;
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const uint2 four = lanes[j * kThreads];
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        rows[i].multiply(sum[i][j], four);
      }
    }
    if (++step < steps) {
      continue;
    }
    const std::int64_t column = first_column + turn * (64 * kWarpsN) + 16 * t;
    const std::int64_t left = width - column;
    const int end = left < 16 ? static_cast<int>(left) : 16;  // may be negative
    const T* bias =
        params.bias[tile.slice] == nullptr
            ? nullptr
            : static_cast<const T*>(params.bias[tile.slice]) + segment.adapter * width + column;
    const auto* before =
        reinterpret_cast<const uint4*>(stage + kThreads * kPairedBytesOfB) + thread;
#pragma unroll
    for (int i = 0; i < 2 * kRows; ++i) {
      float delta[16];
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          delta[2 * j + c] = scale * sum[i / 2][j][i % 2 * 2 + c];
          sum[i / 2][j][i % 2 * 2 + c] = 0;
          if (bias != nullptr && 2 * j + c < end) {
            delta[2 * j + c] += to_float(bias[2 * j + c]);
          }
        }
      }
      if (first_row + g + 8 * i >= segment.rows) {
        continue;
      }
      if (plan.vector_y && end == 16) {
        const uint4 inputs[2] = {before[2 * i * kThreads], before[(2 * i + 1) * kThreads]};
        store_whole(y_of(i, column), inputs, params.add_inputs, delta);
      } else {
        store_some(y_of(i, column), end, params.add_inputs, delta);
      }
    }
    step = 0;
    ++turn;
  }
}

}  // namespace lora_bench::kernels
