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
// straight to registers, 16 bytes a lane, `kAhead` groups of 32 columns ahead. The columns of a
// group are in the same order for both factors, so that a lane's 16 bytes are its share of two
// products. Then the sums of all warps of the eight blocks meet in shared memory: each block adds
// its share of them, in turn, and writes what is behind x, and h of rows that are left to an
// expand. Other clusters write B behind W and zeros behind rows without an adapter. Bound: memory,
// x once.
namespace lora_bench::kernels {

constexpr int kHiddenThreads = 256;
constexpr int kHiddenGroup = 32;

struct HiddenTile {
  int group = -1;  // of the plan; -1: none
  int first = 0;   // row of the group
};

// Of the tiles of all groups, that of this number.
__device__ inline HiddenTile hidden_tile(const ShrinkParams& shrink, int tile) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  HiddenTile found;
  if (shrink.active == 1) {
    return {0, tile * kContinuedTileRows};
  }
  int before = 0;
  for (int group = 0; group < shrink.active; group += 32) {
    const int own = group + lane;
    const int rows =
        own < shrink.active ? shrink.group_starts[own + 1] - shrink.group_starts[own] : 0;
    const int tiles = (rows + kContinuedTileRows - 1) / kContinuedTileRows;
    int end = tiles;
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(~0U, end, step);
      end += lane >= step ? other : 0;
    }
    end += before;
    const unsigned mine = __ballot_sync(~0U, tile >= end - tiles && tile < end);
    if (mine != 0) {
      const int at = __ffs(static_cast<int>(mine)) - 1;
      found.group = group + at;
      found.first = (tile - __shfl_sync(~0U, end - tiles, at)) * kContinuedTileRows;
      return found;
    }
    before = __shfl_sync(~0U, end, 31);
  }
  return found;
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
    copy_behind(shared + row * pitch + column * 2, there ? a : shrink.x, there ? 16 : 0);
  }
  close_copies();
}

// kTiles: of eight lanes. kAhead: groups of columns of x that are on their way; 8 where each block
// has a multiprocessor, and then they write B too.
template <int kTiles, int kAhead>
__global__ void __launch_bounds__(kHiddenThreads, kTiles > 8 || kAhead > 4 ? 1 : 2)
    continued_hidden(const __grid_constant__ ContinuedParams params) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  __trap();
#else
  constexpr int kLanes = 8 * kTiles;
  extern __shared__ __align__(128) unsigned char shared[];
  const ShrinkParams& shrink = params.shrink;
  const unsigned rank_in_cluster = blockIdx.x % kContinuedSplits;
  const int cluster = static_cast<int>(blockIdx.x / kContinuedSplits);
  if (cluster >= params.tiles) {
    const int workers = static_cast<int>(gridDim.x) - params.tiles * kContinuedSplits;
    const int worker = static_cast<int>(blockIdx.x) - params.tiles * kContinuedSplits;
    await_previous_kernel();
    put_b(params, worker, workers);
    clear_rows(params, worker, workers);
    return;
  }
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const HiddenTile tile = hidden_tile(shrink, cluster);
  const bool none = tile.group < 0;
  const int id = none ? 0 : shrink.active_ids[tile.group];
  const int start = none ? 0 : shrink.group_starts[tile.group] + tile.first;
  const int rows = none ? 0 : min(shrink.group_starts[tile.group + 1] - start, kContinuedTileRows);
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
  if constexpr (kAhead > 4) {
    put_b(params, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
    clear_rows(params, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
  }
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
        const std::uint32_t even[4] = {now[i][0].x, now[i][1].x, now[i][0].y, now[i][1].y};
        const std::uint32_t odd[4] = {now[i][0].z, now[i][1].z, now[i][0].w, now[i][1].w};
#pragma unroll
        for (int of = 0; of < kTiles; ++of) {
          const uint4 lanes = *reinterpret_cast<const uint4*>(a + of * 8 * params.pitch);
          const std::uint32_t first[2] = {lanes.x, lanes.y};
          const std::uint32_t second[2] = {lanes.z, lanes.w};
          multiply_add(__nv_bfloat16{}, sums[of], even, first);
          multiply_add(__nv_bfloat16{}, sums[of], odd, second);
        }
      }
    }
  }
  // [warp][row][lane]
  auto* const partial = reinterpret_cast<float*>(shared + kLanes * params.pitch);
#pragma unroll
  for (int of = 0; of < kTiles; ++of) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = warp * 16 + lane / 4 + i / 2 * 8;
      partial[row * kLanes + of * 8 + lane % 4 * 2 + i % 2] = sums[of][i];
    }
  }
  arrive_and_wait_cluster();
  const int own = static_cast<int>(rank_in_cluster);
  constexpr int kQuads = kLanes / 4;
  for (int i = own * kHiddenThreads + static_cast<int>(threadIdx.x); i < rows * kQuads;
       i += kContinuedSplits * kHiddenThreads) {
    const int row = i / kQuads;
    const int of_row = i % kQuads * 4;
    float4 sum = {};
    for (int sharer = 0; sharer < sharers; ++sharer) {
      const std::uint32_t of_sharer = shared_address(
          partial + ((sharer * row_groups + row / 16) * 16 + row % 16) * kLanes + of_row);
      float4 part[kContinuedSplits];
#pragma unroll
      for (int split = 0; split < kContinuedSplits; ++split) {
        part[split] = read_remote(of_sharer, static_cast<unsigned>(split));
      }
#pragma unroll
      for (int split = 0; split < kContinuedSplits; ++split) {
        sum.x += part[split].x;
        sum.y += part[split].y;
        sum.z += part[split].z;
        sum.w += part[split].w;
      }
    }
    put_h(params, shrink.token_order[start + row], id, of_row, sum);
  }
  constexpr int kWarps = kHiddenThreads / 32;
  for (int row = own * kWarps + warp; row < rows; row += kContinuedSplits * kWarps) {
    clear_others(params, shrink.token_order[start + row], id, lane);
  }
  arrive_and_wait_cluster();  // what others read here is here
#endif
}

}  // namespace lora_bench::kernels
