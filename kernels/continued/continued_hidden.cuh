#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/asynchronous.cuh"
#include "kernels/continued/continued.h"
#include "kernels/continued/continued_lanes.cuh"
#include "kernels/link.cuh"
#include "kernels/tile/mma.cuh"

// h of many rows, made and put behind x in one launch with B behind W.
//
// A cluster of eight blocks owns 128 rows of one adapter, in the plan's order; each block has an
// eighth of K for all of them, and of A, all slices, in shared memory before x may be read. A warp
// has 16 rows, or where there are fewer several share the block's columns; x goes from memory
// straight to registers, 16 bytes a lane, four groups of 32 columns ahead. The columns of a
// group are in the same order for both factors, so that a lane's 16 bytes are its share of two
// products. Then the sums of all warps of the eight blocks meet in shared memory: each block adds
// its share of them, in turn, and writes what is behind x, and h of rows that are left to an
// expand. Other clusters write B behind W and zeros behind rows without an adapter. Bound: memory,
// x once.
namespace lora_bench::kernels {

constexpr int kHiddenThreads = 256;
constexpr int kHiddenGroup = 32;
constexpr int kAhead = 4;  // groups of columns of x that are on their way
constexpr int kWarps = kHiddenThreads / 32;

// Rows of one adapter, in the plan's order.
struct HiddenRows {
  int id = 0;
  int start = 0;
  int rows = 0;  // 0: none
};

// Rows of a group that whole tiles leave, where they are few.
__device__ inline int few_rows(int rows) {
  const int left = rows % kContinuedTileRows;
  return left <= kContinuedFewRows ? left : 0;
}

// Of the tiles of all groups, or of their few rows, those of this number. By whole warps.
__device__ inline HiddenRows hidden_rows(const ShrinkParams& shrink, int number, bool few) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  int before = 0;
  for (int group = 0; group < shrink.active; group += 32) {
    const int own = group + lane;
    const int start = own < shrink.active ? shrink.group_starts[own] : 0;
    const int rows = own < shrink.active ? shrink.group_starts[own + 1] - start : 0;
    const int id = own < shrink.active ? shrink.active_ids[own] : 0;
    const int left = few_rows(rows);
    const int count =
        few ? (left > 0 ? 1 : 0) : (rows - left + kContinuedTileRows - 1) / kContinuedTileRows;
    int end = count;
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(~0U, end, step);
      end += lane >= step ? other : 0;
    }
    end += before;
    const unsigned mine = __ballot_sync(~0U, number >= end - count && number < end);
    if (mine != 0) {
      const int first = few ? rows - left : (number - (end - count)) * kContinuedTileRows;
      const int most = few ? left : min(rows - left - first, kContinuedTileRows);
      const int at = __ffs(static_cast<int>(mine)) - 1;
      HiddenRows found;
      found.id = __shfl_sync(~0U, id, at);
      found.start = __shfl_sync(~0U, start + first, at);
      found.rows = __shfl_sync(~0U, most, at);
      return found;
    }
    before = __shfl_sync(~0U, end, 31);
  }
  return {};
}

__device__ inline float4 read_remote(std::uint32_t own, unsigned rank) {
  std::uint32_t there = 0;
  float4 value = {};
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(own), "r"(rank));
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "r"(there)
               : "memory");
  return value;
}

__device__ inline void arrive_and_wait_cluster() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

// The same without a fence, which would wait for what a thread has written to memory: enough where
// blocks have only read from each other.
__device__ inline void part_from_cluster() {
  arrive_in_cluster();
  await_cluster();
}

// What all blocks of the cluster have there, in turn.
__device__ inline void add_parts(float4& sum, const float* own) {
  float4 part[kContinuedSplits];
#pragma unroll
  for (int split = 0; split < kContinuedSplits; ++split) {
    part[split] = read_remote(shared_address(own), static_cast<unsigned>(split));
  }
#pragma unroll
  for (int split = 0; split < kContinuedSplits; ++split) {
    sum.x += part[split].x;
    sum.y += part[split].y;
    sum.z += part[split].z;
    sum.w += part[split].w;
  }
}

// A warp's sums: [row][lane].
template <int kTiles>
__device__ inline void keep_sums(float* partial, int warp, int lane,
                                 const float (&sums)[kTiles][4]) {
#pragma unroll
  for (int of = 0; of < kTiles; ++of) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = warp * 16 + lane / 4 + i / 2 * 8;
      partial[row * 8 * kTiles + of * 8 + lane % 4 * 2 + i % 2] = sums[of][i];
    }
  }
}

// Both rows' 16 bytes of x by 8 lanes of A, two products.
__device__ inline void multiply_lanes(float (&sum)[4], const uint4& low, const uint4& high,
                                      const uint4& lanes) {
  const std::uint32_t even[4] = {low.x, high.x, low.y, high.y};
  const std::uint32_t odd[4] = {low.z, high.z, low.w, high.w};
  const std::uint32_t first[2] = {lanes.x, lanes.y};
  const std::uint32_t second[2] = {lanes.z, lanes.w};
  multiply_add(__nv_bfloat16{}, sum, even, first);
  multiply_add(__nv_bfloat16{}, sum, odd, second);
}

// A of one adapter, this block's columns, all slices below each other; zeros above the rank and K.
__device__ inline void stage_a(const ShrinkParams& shrink, int id, int first_column, int columns,
                               int pitch, int rows, unsigned char* shared) {
  const int rank = shrink.rank[id];
  const int max_rank = static_cast<int>(shrink.max_rank);
  const int pieces = columns / 8;
  for (int i = static_cast<int>(threadIdx.x); i < rows * pieces; i += kHiddenThreads) {
    const int row = i / pieces;
    const int column = i % pieces * 8;
    const int slice = row / max_rank;
    const int lane = row % max_rank;
    const bool there = slice < shrink.slices && lane < rank &&
                       first_column + column < static_cast<int>(shrink.in_features);
    const auto* const a = there ? static_cast<const __nv_bfloat16*>(shrink.a[slice]) +
                                      (id * shrink.max_rank + lane) * shrink.in_features +
                                      first_column + column
                                : nullptr;
    copy_sixteen(shared + row * pitch + column * 2, there ? a : shrink.x, there ? 16 : 0);
  }
  close_copies();
}

// Few rows of eight adapters, a warp each, over the block's columns: A is used once, and comes from
// memory to registers too.
template <int kTiles>
__device__ void make_few(const ContinuedParams& params, int cluster, unsigned char* shared) {
  constexpr int kLanes = 8 * kTiles;
  constexpr int kTogether = kTiles > 2 ? 2 : 4;
  const ShrinkParams& shrink = params.shrink;
  const int split = static_cast<int>(blockIdx.x % kContinuedSplits);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const HiddenRows own = hidden_rows(shrink, cluster * kWarps + warp, true);
  auto* const all = reinterpret_cast<HiddenRows*>(shared);  // of all warps
  if (lane == 0) {
    all[warp] = own;
  }
  const int rank = own.rows > 0 ? shrink.rank[own.id] : 0;
  const int max_rank = static_cast<int>(shrink.max_rank);
  const auto* const x = static_cast<const __nv_bfloat16*>(shrink.x) + lane % 4 * 8;
  const __nv_bfloat16* rows[2] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (lane / 4 + half * 8 < own.rows) {
      rows[half] = x + shrink.token_order[own.start + lane / 4 + half * 8] * shrink.x_stride;
    }
  }
  const __nv_bfloat16* a[kTiles] = {};
#pragma unroll
  for (int of = 0; of < kTiles; ++of) {
    const int slice = (of * 8 + lane / 4) / max_rank;
    const int of_slice = (of * 8 + lane / 4) % max_rank;
    if (slice < shrink.slices && of_slice < rank) {
      a[of] = static_cast<const __nv_bfloat16*>(shrink.a[slice]) +
              (own.id * shrink.max_rank + of_slice) * shrink.in_features + lane % 4 * 8;
    }
  }
  const int first = split * params.columns_each;
  const int end = min(first + params.columns_each, static_cast<int>(shrink.in_features));
  await_previous_kernel();
  float sums[kTiles][4] = {};
  for (int column = first; own.rows > 0 && column < end; column += kTogether * kHiddenGroup) {
    uint4 of_x[kTogether][2];
    uint4 of_a[kTogether][kTiles];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int at = column + i * kHiddenGroup;
      const bool inside = at + lane % 4 * 8 < end;
      const auto load = [&](const __nv_bfloat16* from) {
        return inside && from != nullptr ? *reinterpret_cast<const uint4*>(from + at) : uint4{};
      };
      of_x[i][0] = load(rows[0]);
      of_x[i][1] = load(rows[1]);
#pragma unroll
      for (int of = 0; of < kTiles; ++of) {
        of_a[i][of] = load(a[of]);
      }
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
#pragma unroll
      for (int of = 0; of < kTiles; ++of) {
        multiply_lanes(sums[of], of_x[i][0], of_x[i][1], of_a[i][of]);
      }
    }
  }
  auto* const partial = reinterpret_cast<float*>(shared + kLanes * params.pitch);
  keep_sums<kTiles>(partial, warp, lane, sums);
  arrive_and_wait_cluster();
  constexpr int kQuads = kLanes / 4;
  for (int i = split * kHiddenThreads + static_cast<int>(threadIdx.x);
       i < kContinuedTileRows * kQuads; i += kContinuedSplits * kHiddenThreads) {
    const int row = i / kQuads;
    const HiddenRows of = all[row / 16];
    if (row % 16 < of.rows) {
      float4 sum = {};
      add_parts(sum, partial + row * kLanes + i % kQuads * 4);
      put_h(params, shrink.token_order[of.start + row % 16], of.id, i % kQuads * 4, sum);
    }
  }
  for (int row = split * kWarps + warp; row < kContinuedTileRows;
       row += kContinuedSplits * kWarps) {
    const HiddenRows of = all[row / 16];
    if (row % 16 < of.rows) {
      clear_others(params, shrink.token_order[of.start + row % 16], of.id, lane);
    }
  }
  part_from_cluster();  // what others read here is here
}

// kTiles: of eight lanes.
template <int kTiles>
__global__ void __launch_bounds__(kHiddenThreads, kTiles > 8 ? 1 : 2)
    continued_hidden(const __grid_constant__ ContinuedParams params) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  __trap();
#else
  constexpr int kLanes = 8 * kTiles;
  extern __shared__ __align__(128) unsigned char shared[];
  const ShrinkParams& shrink = params.shrink;
  const unsigned rank_in_cluster = blockIdx.x % kContinuedSplits;
  const int cluster = static_cast<int>(blockIdx.x / kContinuedSplits);
  const int clusters_of_few = (params.few + kWarps - 1) / kWarps;
  if (cluster >= params.tiles + clusters_of_few) {
    const int others = (params.tiles + clusters_of_few) * kContinuedSplits;
    const int workers = static_cast<int>(gridDim.x) - others;
    const int worker = static_cast<int>(blockIdx.x) - others;
    await_previous_kernel();
    put_b(params, worker, workers);
    clear_rows(params, worker, workers);
    return;
  }
  if (cluster >= params.tiles) {
    make_few<kTiles>(params, cluster - params.tiles, shared);
    return;
  }
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const HiddenRows own_rows = hidden_rows(shrink, cluster, false);
  const int id = own_rows.id;
  const int start = own_rows.start;
  const int rows = own_rows.rows;
  // Warps that share rows, and those that share columns: eight in all.
  const int sharers = rows <= 16 ? 8 : rows <= 32 ? 4 : rows <= 64 ? 2 : 1;
  const int row_groups = kHiddenThreads / 32 / sharers;
  const int first_row = warp % row_groups * 16;
  const int of_block = static_cast<int>(rank_in_cluster) * params.columns_each;
  stage_a(shrink, id, of_block, params.columns_each, params.pitch, kLanes, shared);
  const auto token_of = [&](int row) { return row < rows ? shrink.token_order[start + row] : -1; };
  const int low_token = token_of(first_row + lane / 4);
  const int high_token = token_of(first_row + lane / 4 + 8);
  const int groups = params.columns_each / kHiddenGroup;
  const int columns = (groups + sharers - 1) / sharers * kHiddenGroup;
  const int first_column = of_block + warp / row_groups * columns;
  const int end_column = min(min(first_column + columns, of_block + params.columns_each),
                             static_cast<int>(shrink.in_features));
  const auto* const x = static_cast<const __nv_bfloat16*>(shrink.x) + lane % 4 * 8;
  const __nv_bfloat16* const low = x + low_token * shrink.x_stride;
  const __nv_bfloat16* const high = x + high_token * shrink.x_stride;
  await_previous_kernel();
  float sums[kTiles][4] = {};
  uint4 next[kAhead][2];
  const auto load = [&](int column) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int at = column + i * kHiddenGroup;
      const bool inside = at + lane % 4 * 8 < end_column;
      next[i][0] = inside && low_token >= 0 ? *reinterpret_cast<const uint4*>(low + at) : uint4{};
      next[i][1] = inside && high_token >= 0 ? *reinterpret_cast<const uint4*>(high + at) : uint4{};
    }
  };
  load(first_column);
  await_copies<0>();
  __syncthreads();
  for (int column = first_column; column < end_column; column += kAhead * kHiddenGroup) {
    uint4 now[kAhead][2];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      now[i][0] = next[i][0];
      now[i][1] = next[i][1];
    }
    load(column + kAhead * kHiddenGroup);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int at = column + i * kHiddenGroup;
      if (at < end_column) {
        const unsigned char* const a =
            shared + lane / 4 * params.pitch + (at - of_block + lane % 4 * 8) * 2;
#pragma unroll
        for (int of = 0; of < kTiles; ++of) {
          multiply_lanes(sums[of], now[i][0], now[i][1],
                         *reinterpret_cast<const uint4*>(a + of * 8 * params.pitch));
        }
      }
    }
  }
  auto* const partial = reinterpret_cast<float*>(shared + kLanes * params.pitch);
  keep_sums<kTiles>(partial, warp, lane, sums);
  arrive_and_wait_cluster();
  const int own = static_cast<int>(rank_in_cluster);
  constexpr int kQuads = kLanes / 4;
  for (int i = own * kHiddenThreads + static_cast<int>(threadIdx.x); i < rows * kQuads;
       i += kContinuedSplits * kHiddenThreads) {
    const int row = i / kQuads;
    const int of_row = i % kQuads * 4;
    float4 sum = {};
    for (int sharer = 0; sharer < sharers; ++sharer) {
      add_parts(sum,
                partial + ((sharer * row_groups + row / 16) * 16 + row % 16) * kLanes + of_row);
    }
    put_h(params, shrink.token_order[start + row], id, of_row, sum);
  }
  for (int row = own * kWarps + warp; row < rows; row += kContinuedSplits * kWarps) {
    clear_others(params, shrink.token_order[start + row], id, lane);
  }
  part_from_cluster();  // what others read here is here
#endif
}

}  // namespace lora_bench::kernels
