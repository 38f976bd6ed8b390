#pragma once

#include "kernels/asynchronous.cuh"
#include "kernels/chains.h"
#include "kernels/clustered/hidden.cuh"
#include "kernels/clustered/places.cuh"
#include "kernels/clustered/resident_eight_bits.cuh"
#include "kernels/clustered/resident_hidden.cuh"
#include "kernels/clustered/resident_plan.h"
#include "kernels/clustered/resident_products.cuh"
#include "kernels/clustered/resident_tuning.h"
#include "kernels/link.cuh"
#include "kernels/params.h"
#include "kernels/segment/fragments.cuh"

// shrink and expand of a tile of rows of one adapter by the blocks of a cluster, whose shared
// memory holds all of its weights before the kernel before this one has ended. What is left to do
// then is short, and nothing in it asks for weights.
//   grid      (blocks of a cluster) x (row tiles) x (groups of columns, each with h of its own)
//   shrink    a warp takes pairs of a chain of K and 16 lanes, dealt over the cluster in order; all
//             warps bring x
//   sums      of every chain go to every block of the cluster, which adds the eight
//   expand    a warp takes units of 32 columns, dealt over the cluster and the groups in order
//   barriers  counting bytes: two a warp, for its A and its B, one a block for all sums; one of the
//             cluster at the start, one of the block for x and one for h
//   order     as in kernels/panel: from in_features and the rank alone
//   bytes     A and B x row tiles, A x groups, all but the first from the L2; y once each way
//   bound     the latency of a warp: what can be worked out before the wait is settled there
// W is the storage of A and B: T, or EightBits, which become T in shared memory. Their scales go
// into sums, as in `clustered`.
namespace lora_bench::kernels {

template <typename T, typename H, typename W, bool kBias, int kEights>
__global__ void __launch_bounds__(kResidentMostWarps * 32, kEights == 1 ? 2 : 1)
    resident(const __grid_constant__ ShrinkParams s, const __grid_constant__ ExpandParams e,
             const __grid_constant__ ResidentPlanOf<W> plan) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  __trap();  // supports() said no
#else
  using Planes = HiddenPlanes<T, H>;
  constexpr bool kEight = std::is_same_v<W, EightBits>;
  constexpr int kBytes = static_cast<int>(sizeof(W));
  constexpr int kRows = 8 * kEights;
  constexpr int kTiles = kResidentColumns / 16;
  constexpr int kPlane = kRows * Planes::kBytes;
  extern __shared__ __align__(128) char shared[];
  let_next_kernel_start();
  const int thread = static_cast<int>(threadIdx.x);
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int warp = __shfl_sync(0xFFFFFFFFU, thread / 32, 0);
  const int lane = thread % 32;
  const int g = lane / 4;
  const int t = lane % 4;
  const int block = static_cast<int>(blockIdx.x);  // of the cluster
  const std::uint32_t base = shared_address(shared);
  const std::uint32_t a_barrier = base + 8 + 16 * warp;
  const std::uint32_t b_barrier = a_barrier + 8;
  char* const hidden = shared + kClusteredBarrierBytes;
  if (!plan.linked) {
    await_previous_kernel();
  }
  const TileOfRows tile = find_tile(s, e, static_cast<int>(blockIdx.y), kRows, base, a_barrier, 2);
  const Segment& segment = tile.segment;
  const int rank = tile.rank;
  const std::int32_t own_token = tile.own_token;
  const float shrink_scale = tile.shrink_scale;
  const float scale = tile.scale;
  if (rank == 0) {
    if (blockIdx.y == 0) {
      await_previous_kernel();  // so that this kernel does not end before the one before it
    }
    await_cluster();
    return;
  }
  const std::uint64_t policy = evict_first();
  const int max_rank = static_cast<int>(e.max_rank);
  const int pitch = plan.lane_pitch;

  // Share of shrink.
  const int tiles_of_slice = (rank + 7) / 8;
  const int eights = s.slices * tiles_of_slice;
  const int tiles = (eights + 1) / 2;
  const float per_cluster = inverse_of(plan.cluster);
  const float per_tiles = inverse_of(tiles);
  const float per_slice = inverse_of(tiles_of_slice);
  const int block_pair = divide(kChains * tiles * block, per_cluster);
  const int end_pair = divide(kChains * tiles * (block + 1), per_cluster);
  const int first_chain = divide(block_pair, per_tiles);
  const int end_chain = divide(end_pair + tiles - 1, per_tiles);
  const auto length_of = [&](int chain) {
    return max(min(static_cast<int>(s.in_features) - chain * plan.chain, plan.chain), 0);
  };
  const int a_codes = kEight ? plan.chain : 0;  // where they begin in the room of a lane
  const auto lanes_at = [&](int pair) {         // in shared memory
    return plan.a + (pair - block_pair) * 16 * pitch;
  };
#pragma unroll 1
  for (int number = block_pair + warp; number < end_pair; number += warps) {
    const int chain = divide(number, per_tiles);
    const int eight = 2 * (number - chain * tiles) + lane / 8;
    const int slice = divide(eight, per_slice);
    const int of_slice = (eight - slice * tiles_of_slice) * 8 + lane % 8;
    const int bytes = kBytes * length_of(chain);
    const bool mine = lane < 16 && eight < eights && of_slice < rank && bytes > 0;
    const int copies = __popc(__ballot_sync(0xFFFFFFFFU, mine));
    if (lane == 0) {
      expect_more(a_barrier, bytes * copies);
    }
    __syncwarp();
    if (mine) {
      copy_bulk(base + lanes_at(number) + lane * pitch + a_codes,
                static_cast<const W*>(s.a[slice]) +
                    (segment.adapter * s.max_rank + of_slice) * s.in_features + chain * plan.chain,
                bytes, a_barrier, policy);
    }
  }

  // Share of expand.
  const int share = static_cast<int>(blockIdx.z) * plan.cluster + block;
  const int block_unit = share * plan.units_each + min(share, plan.units_more);
  const int units = plan.units_each + (share < plan.units_more ? 1 : 0);
  const int eight_bytes = 16 * max_rank + 32;               // of 8 columns; the next on other banks
  const int b_scales = kResidentColumns / 8 * eight_bytes;  // behind the columns of a unit
  const int unit_bytes = b_scales + (kEight ? kResidentColumns * 4 : 0);
#pragma unroll 1
  for (int unit = warp; unit < units; unit += warps) {
    const UnitPlace place = place_of_unit(e, block_unit + unit, kResidentColumns);
    const int columns = min(place.width - place.column, kResidentColumns);
    if (lane == 0) {
      expect_more(b_barrier, columns * max_rank * kBytes);
    }
    __syncwarp();
    if constexpr (kEight) {
      bring_codes_of_unit(e, plan, base + plan.b + unit * unit_bytes, place, columns, eight_bytes,
                          segment.adapter, b_barrier, policy);
    } else if (8 * lane < columns) {
      copy_bulk(base + plan.b + (unit * (kResidentColumns / 8) + lane) * eight_bytes,
                static_cast<const T*>(e.b[place.slice]) +
                    (segment.adapter * place.width + place.column + 8 * lane) * max_rank,
                16 * max_rank, b_barrier, policy);
    }
  }
  if (lane == 0) {
    arrive(a_barrier);
    arrive(b_barrier);
  }
  if constexpr (kEight) {
    bring_scales_of_lanes(plan, base + plan.a_scales, s.slices, tiles_of_slice, segment.adapter,
                          s.max_rank, rank);
  }

  // All that is known before x and y are.
  const int chunks = (plan.chain + 63) / 64 * 8;  // of 8 elements of a chain of x, zeros at the end
  const int x_pitch = chunks * 16 + kResidentPad;
  const int rows_of_x = min(segment.rows, 8);
  const int x_items = (end_chain - first_chain) * rows_of_x * chunks;
  const float per_chunks = inverse_of(chunks);
  const float per_rows_of_x = inverse_of(rows_of_x);
  struct Chunk {  // of rows `row` and `row` + 8
    const T* from[kEights];
    int to;
    int inside;
  };
  const auto chunk_of = [&](int item) {
    const int line = divide(item, per_chunks);
    const int at = item - line * chunks;
    const int chain = divide(line, per_rows_of_x);
    const int row = line - chain * rows_of_x;
    Chunk chunk;
    chunk.inside = 8 * at < length_of(first_chain + chain) ? 1 : 0;
    const int k = chunk.inside != 0 ? (first_chain + chain) * plan.chain + 8 * at : 0;
#pragma unroll
    for (int n = 0; n < kEights; ++n) {
      const int of = min(row + 8 * n, segment.rows - 1);
      const std::int64_t token = row_of_x(s, s.token_order[segment.first + of]);
      chunk.from[n] = static_cast<const T*>(s.x) + token * s.x_stride + k;
    }
    chunk.to = plan.x + (chain * plan.x_rows + row) * x_pitch + at * 16;
    return chunk;
  };
  constexpr int kAhead = 4;  // chunks of a thread under way together
  Chunk own_chunks[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    own_chunks[i] = chunk_of(min(thread + i * 32 * warps, max(x_items - 1, 0)));
  }
  struct Pair {
    int chain;
    int length;
    int sums;  // offset of this thread's four lanes of row 0, where it has four
    int four;
  };
  const auto pair_of = [&](int number) {
    Pair pair;
    pair.chain = divide(number, per_tiles);
    pair.length = length_of(pair.chain);
    const int eight = 2 * (number - pair.chain * tiles) + t / 2;
    const int of_slice = (eight - divide(eight, per_slice) * tiles_of_slice) * 8 + t % 2 * 4;
    pair.four = eight < eights && of_slice < rank ? 1 : 0;
    pair.sums = plan.sums + (pair.chain * kRows * plan.sums_pitch + eight * 8 + t % 2 * 4) * 4;
    return pair;
  };
  Pair pair = pair_of(block_pair + warp);
  UnitPlace place;
  const int first_slice = place_of_unit(e, block_unit, kResidentColumns).slice;
  const int end_slice =
      place_of_unit(e, block_unit + max(units - 1, 0), kResidentColumns).slice + 1;
  const int steps = (rank + 15) / 16;
  const int lanes_of_row = units > 0 ? (end_slice - first_slice) * steps * 16 : 0;
  const float per_lanes_of_row = inverse_of(max(lanes_of_row, 1));
  const float per_steps = inverse_of(steps);
  struct Lane {  // of a row of h
    int from;
    int to;
    int in_rank;
    int scale;  // of A, where weights have eight bits
  };
  const auto lane_of = [&](int item) {
    const int row = divide(item, per_lanes_of_row);
    const int at = item - row * lanes_of_row;
    const int task = at / 16;
    const int slice = divide(task, per_steps);
    const int of_slice = at - slice * steps * 16;
    Lane of;
    const int of_all = (first_slice + slice) * tiles_of_slice * 8 + of_slice;
    of.from = plan.sums + (row * plan.sums_pitch + of_all) * 4;
    of.scale = 0;
    if constexpr (kEight) {
      of.scale = plan.a_scales + of_all * 4;
    }
    of.to = task * Planes::kParts * kPlane + row * Planes::kBytes +
            at % 16 * static_cast<int>(sizeof(typename Planes::Part));
    of.in_rank = of_slice < rank ? 1 : 0;
    return of;
  };
  Lane own_lane = lane_of(thread);
  const int own_column = 8 * (g % 4) + 4 * (g / 4);  // of a unit, and the three after it
  T* y_at[kEights][2];
  int own_rows = 0;  // bits: which of them are to be written
  const auto aim = [&](int unit) {
    place = place_of_unit(e, block_unit + unit, kResidentColumns);
    own_rows = 0;
#pragma unroll
    for (int n = 0; n < kEights; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = 8 * n + 2 * t + i;
        const std::int64_t token = __shfl_sync(0xFFFFFFFFU, own_token, row);
        y_at[n][i] =
            static_cast<T*>(e.y) + token * e.y_stride + place.start + place.column + own_column;
        if (row < segment.rows && place.column + own_column < place.width) {
          own_rows |= 1 << (2 * n + i);
        }
      }
    }
  };
  int unit = warp;
  aim(min(warp, max(units - 1, 0)));
  const std::uint32_t to[2] = {in_block(base, min(g, plan.cluster - 1)),
                               in_block(base, min(g + 8, plan.cluster - 1))};
  // Rows g and g + 8 of tile j are columns own_column + 2 * j and the next.
  int own_b = plan.b + g % 4 * eight_bytes + g / 4 * 8 * max_rank + t * 8;
  int own_hidden = kClusteredBarrierBytes + g * Planes::kBytes + t * (Planes::kBytes / 4);
  // Columns 2 t and 2 t + 1 of both tiles of 8 lanes are four neighbouring lanes, of the second
  // half of a tile those of the other tile first: lanes of a tile lie on different banks. What this
  // thread says of 32 elements: where 8 of them lie, of one lane.
  const int half = lane % 8 / 4;
  std::uint32_t own_lanes = base + (lane % 8 / 2 * 4 + lane % 2 + 2 * half) * pitch + lane / 8 * 16;
  const int to_second = (1 - 2 * half) * 2 * pitch;
  // And of 16 elements of 16 rows of x.
  std::uint32_t own_x = base + plan.x +
                        (lane / 8 % 2 * (kRows - 8) + min(lane % 8, rows_of_x - 1)) * x_pitch +
                        lane / 16 * 16;
  int number = block_pair + warp;
  int items_of_h = segment.rows * lanes_of_row;
  settle(unit, number, own_b, own_hidden, own_lanes, own_x, own_rows, items_of_h);
  settle(pair.length, pair.chain, pair.sums, pair.four);
  settle(own_lane.from, own_lane.to, own_lane.in_rank);
#pragma unroll
  for (int n = 0; n < kEights; ++n) {
    settle(y_at[n][0], y_at[n][1]);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      settle(own_chunks[i].from[n]);
    }
  }
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    settle(own_chunks[i].to, own_chunks[i].inside);
  }
  if (thread == 0) {  // whole fours of lanes of all chains
    expect_bytes(base, kChains * s.slices * ((rank + 3) / 4 * 4) * segment.rows *
                           static_cast<int>(sizeof(float)));
  }
  await_cluster();  // all blocks are there, and their barriers
  if constexpr (kEight) {
    widen_pairs<T>(shared + plan.a, end_pair - block_pair, plan, base + 8,
                   [&](int pair) { return length_of(divide(block_pair + pair, per_tiles)); });
    await_own_copies();  // scales
  } else {
    await_phase(a_barrier, 0);
  }
  if (plan.linked) {
    await_previous_kernel();
  }

  // What lies in rows of x that the tile has not does not matter.
  uint4 chunks_in[kAhead][kEights];
  const auto load_x = [&](int first_item) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
#pragma unroll
      for (int n = 0; n < kEights; ++n) {
        chunks_in[i][n] = uint4{};
        if (first_item + i * 32 * warps < x_items && own_chunks[i].inside != 0) {
          chunks_in[i][n] = __ldcg(reinterpret_cast<const uint4*>(own_chunks[i].from[n]));
        }
      }
    }
  };
  load_x(thread);
  uint2 inputs[kEights][2];
  const auto load_y = [&]() {
#pragma unroll
    for (int n = 0; n < kEights; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        inputs[n][i] = uint2{};
        if (e.add_inputs && (own_rows >> (2 * n + i) & 1) != 0) {
          inputs[n][i] = __ldcg(reinterpret_cast<const uint2*>(y_at[n][i]));
        }
      }
    }
  };
  if (warp < units) {
    load_y();
  }
#pragma unroll 1
  for (int first_item = thread; first_item < x_items;) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (first_item + i * 32 * warps < x_items) {
#pragma unroll
        for (int n = 0; n < kEights; ++n) {
          *reinterpret_cast<uint4*>(shared + own_chunks[i].to + 8 * n * x_pitch) = chunks_in[i][n];
        }
      }
    }
    first_item += kAhead * 32 * warps;
    if (first_item < x_items) {
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        own_chunks[i] = chunk_of(min(first_item + i * 32 * warps, x_items - 1));
      }
      load_x(first_item);
    }
  }
  __syncthreads();  // x is there
#pragma unroll 1
  while (number < end_pair) {
    const std::uint32_t x = own_x + (pair.chain - first_chain) * plan.x_rows * x_pitch;
    float sum[2][4] = {};
    multiply_chain<T>(own_lanes + lanes_at(number), to_second, x, pair.length, sum);
    send_sums<kEights>(plan, sum, segment.rows, g, t, to, pair.sums, pair.four);
    number += warps;
    if (number < end_pair) {
      pair = pair_of(number);
    }
  }
  if constexpr (kEight) {
    await_phase(b_barrier, 0);
#pragma unroll 1
    for (int own = warp; own < units; own += warps) {
      widen_unit<T>(shared + plan.b + own * unit_bytes, max_rank, eight_bytes, plan.scales.e5m2);
    }
  }
  await_phase(base, 0);

  // h, a lane of a row a thread, of the slices that this block needs.
#pragma unroll 1
  for (int item = thread; item < items_of_h;) {
    float value = 0.0F;
    if (own_lane.in_rank != 0) {
      value = add_chains_of_lane(shared + own_lane.from, kRows * plan.sums_pitch * 4);
      if constexpr (kEight) {
        value = __fmul_rn(load_shared<float>(shared + own_lane.scale), value);
      }
      if (s.scale != nullptr) {
        value = __fmul_rn(shrink_scale, value);
      }
    }
    Planes::store(hidden + own_lane.to, kPlane, value);
    item += 32 * warps;
    if (item < items_of_h) {
      own_lane = lane_of(item);
    }
  }
  __syncthreads();  // h is there

  if constexpr (!kEight) {
    await_phase(b_barrier, 0);
  }
#pragma unroll 1
  while (unit < units) {
    const char* const b = shared + own_b + unit * unit_bytes;
    float sum[kTiles][kEights][4] = {};
    const char* const h =
        shared + own_hidden + (place.slice - first_slice) * steps * Planes::kParts * kPlane;
    multiply_unit<Planes>(b, 2 * max_rank, h, rank, 4 * t, sum);
    if constexpr (kEight) {
      multiply_by_scales(shared + plan.b + unit * unit_bytes + b_scales + 4 * own_column, sum);
    }
#pragma unroll
    for (int n = 0; n < kEights; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float scale_here = e.factor == nullptr ? scale : tile.scale_of_row(8 * n + 2 * t + i);
        if ((own_rows >> (2 * n + i) & 1) != 0) {
          float delta[4];
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            delta[c] = __fmul_rn(scale_here, sum[c / 2][n][c % 2 * 2 + i]);
          }
          if constexpr (kBias) {
            const T* const bias = static_cast<const T*>(e.bias[place.slice]);
            if (bias != nullptr) {
              const T* const from =
                  bias + segment.adapter * place.width + place.column + own_column;
#pragma unroll
              for (int c = 0; c < 4; ++c) {
                delta[c] = __fadd_rn(delta[c], to_float(from[c]));
              }
            }
          }
          *reinterpret_cast<uint2*>(y_at[n][i]) = sum_of<T>(inputs[n][i], e.add_inputs, delta);
        }
      }
    }
    unit += warps;
    if (unit < units) {
      aim(unit);
      load_y();
    }
  }
#endif
}

}  // namespace lora_bench::kernels
