#pragma once

#include "kernels/asynchronous.cuh"
#include "kernels/chains.h"
#include "kernels/clustered/any_batch.cuh"
#include "kernels/clustered/clustered_plan.h"
#include "kernels/clustered/clustered_products.cuh"
#include "kernels/clustered/clustered_tuning.h"
#include "kernels/clustered/eight_bits.cuh"
#include "kernels/clustered/eight_bits_unit.cuh"
#include "kernels/clustered/hidden.cuh"
#include "kernels/clustered/places.cuh"
#include "kernels/clustered/sums.cuh"
#include "kernels/link.cuh"
#include "kernels/params.h"
#include "kernels/segment/fragments.cuh"

// shrink and expand of a tile of at most 8 rows of one adapter by the blocks of a cluster.
//   grid      (blocks of a cluster) x (row tiles) x (groups of columns, each with h of its own)
//   shrink    a warp takes pairs of a chain of K and 8 lanes of a slice, dealt over the cluster in
//             order; x of the chains of a block lies in shared memory
//   sums      of every chain go to every block of the cluster, which adds the eight; of many lanes
//             to one block, which adds them and sends h to all
//   expand    a warp takes runs of units of columns, dealt over cluster and groups in order
//   memory    each warp has a ring of slots; bulk copies bring pieces of A, then B with the y that
//             it is added to, as soon as a slot is free, so B is on its way while shrink runs
//   start     A and B at once, as no kernel of a step writes them; x and y after the one before
//   barriers  counting bytes: one a slot, one a block for all sums; one of the cluster at the start
//   order     that of kernels/chains.h
//   bytes     A and B x row tiles, A x groups, all but the first from the L2; x x cluster x
//             groups; y once each way
//   bound     memory; between the phases the latency of a warp: few instructions count
// W is the storage of A and B: T, or EightBits, which become T in registers. Their scales go into
// sums: of A into h, of B, which comes to a slot with it, before the scale of the adapter.
namespace lora_bench::kernels {

template <typename T, typename H, typename W, bool kBias, int kTiles, bool kAnyBatch>
__global__ void __launch_bounds__(512)
    clustered(const __grid_constant__ ShrinkParams s, const __grid_constant__ ExpandParams e,
              const __grid_constant__ PlanOf<W> plan) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  __trap();  // supports() said no
#else
  constexpr int kColumns = 8 * kTiles;  // of a unit
  constexpr bool kEight = std::is_same_v<W, EightBits>;
  constexpr int kBytes = static_cast<int>(sizeof(W));
  constexpr bool kOwned = kTiles < 8;  // many lanes: each block adds its own of them for all
  constexpr int kVectors = static_cast<int>(sizeof(HiddenFragment<T, H>) / 16);
  extern __shared__ __align__(128) char shared[];
  let_next_kernel_start();
  const int thread = static_cast<int>(threadIdx.x);
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int warp = __shfl_sync(0xFFFFFFFFU, thread / 32, 0);
  const int lane = thread % 32;
  const int g = lane / 4;
  const int t = lane % 4;
  const std::uint32_t sums_barrier = shared_address(shared);
  const std::uint32_t barriers = sums_barrier + 8 + 8 * warp * plan.slots;
  char* const rings = shared + kClusteredBarrierBytes;
  char* const ring = rings + warp * plan.slots * plan.slot_bytes;
  const std::uint32_t h_barrier = sums_barrier + kClusteredBarrierBytes - 8;
  char* const sums = rings + warps * plan.slots * plan.slot_bytes;
  char* const h_rows = sums + kChains * kClusteredRows * plan.sums_pitch * 4;
  char* const hidden = h_rows + (kOwned ? kClusteredRows * plan.h_pitch * 4 : 0);
  char* const x_rows = hidden + plan.hidden_bytes;
  if (kOwned && thread == 0) {
    begin_barrier(h_barrier);
  }
  if (!plan.linked) {
    await_previous_kernel();
  }
  Part part;
  const TileOfRows tile = find_tile_and_part<kAnyBatch>(s, e, plan, sums_barrier, barriers, part);
  const int block = part.block;
  const Segment& segment = tile.segment;
  const int rank = tile.rank;
  const std::int32_t own_token = tile.own_token;
  const float shrink_scale = tile.shrink_scale;
  if (rank == 0) {
    await_previous_kernel();  // so that this kernel does not end before the one before it
    await_cluster();
    return;
  }
  const std::uint64_t policy = evict_first();
  const int in_features = static_cast<int>(s.in_features);
  const int max_rank = static_cast<int>(e.max_rank);
  const float per_cluster = inverse_of(part.blocks);

  // Share of shrink.
  const int tiles_of_slice = (rank + 7) / 8;
  const int tiles = s.slices * tiles_of_slice;
  const float per_tiles = inverse_of(tiles);
  const float per_slice = inverse_of(tiles_of_slice);
  const int block_pair = divide(kChains * tiles * block, per_cluster);
  const int end_pair = divide(kChains * tiles * (block + 1), per_cluster);
  const int first_pair = block_pair + warp;
  struct Pair {
    int chain;
    int slice;
    int first;   // lane of the slice
    int lanes;   // up to 8
    int length;  // elements of K, may be 0
  };
  const auto pair_of = [&](int number) {
    Pair pair;
    pair.chain = divide(number, per_tiles);
    const int tile = number - pair.chain * tiles;
    pair.slice = divide(tile, per_slice);
    pair.first = (tile - pair.slice * tiles_of_slice) * 8;
    pair.lanes = min(rank - pair.first, 8);
    pair.length = max(min(in_features - pair.chain * plan.chain, plan.chain), 0);
    return pair;
  };
  int slot_in = 0;  // where the next copy goes
  int pair_in = first_pair;
  int k_in = 0;
  Pair of_pair{};
  const W* a_in = nullptr;
  const auto bring_a = [&]() {
    if (k_in == 0) {
      of_pair = pair_of(pair_in);
      a_in = static_cast<const W*>(s.a[of_pair.slice]) +
             (segment.adapter * s.max_rank + of_pair.first + lane) * s.in_features +
             of_pair.chain * plan.chain;
    }
    const std::uint32_t barrier = barriers + 8 * slot_in;
    const int bytes = kBytes * min(of_pair.length - k_in, plan.piece);
    if (lane == 0) {
      expect_bytes(barrier, bytes * of_pair.lanes);
    }
    __syncwarp();
    if (lane < of_pair.lanes && bytes > 0) {
      copy_bulk(shared_address(ring) + slot_in * plan.slot_bytes + lane * plan.piece_pitch,
                a_in + k_in, bytes, barrier, policy);
    }
    k_in += plan.piece;
    if (k_in >= of_pair.length) {
      k_in = 0;
      pair_in += warps;
    }
    slot_in = slot_in + 1 == plan.slots ? 0 : slot_in + 1;
  };
  int early_a = 0;  // slots
#pragma unroll 1
  for (; early_a < plan.slots && pair_in < end_pair; ++early_a) {
    bring_a();
  }

  // Share of expand.
  const UnitShare of_block = units_of_block<kAnyBatch>(plan, part);
  const int block_unit = of_block.first;
  const float per_warps = inverse_of(warps);
  const int first_unit = block_unit + divide(of_block.count * warp, per_warps);
  const int end_unit = block_unit + divide(of_block.count * (warp + 1), per_warps);
  const int steps = (rank + 15) / 16;
  const int unit_bytes = kColumns * kBytes * max_rank;
  constexpr int kScaleBytes = kEight ? kColumns * 4 : 0;
  const int units_of_slot =
      divide(plan.slot_bytes, inverse_of(unit_bytes + segment.rows * kColumns * 2 + kScaleBytes));
  const int y_of_slot = units_of_slot * unit_bytes;
  const int y_pitch = units_of_slot * kColumns * 2;
  const int scales_of_slot = y_of_slot + segment.rows * y_pitch;
  const auto units_here = [&](const UnitPlace& place) {  // of one slice, in one slot
    const int left = (place.width - place.column + kColumns - 1) / kColumns;
    return min(min(left, end_unit - place.unit), units_of_slot);
  };
  const auto bring_y = [&](const UnitPlace& place, int units, int slot) {
    const int columns = min(place.width - place.column, units * kColumns);
    if (e.add_inputs && lane < segment.rows) {
      copy_bulk(shared_address(ring) + slot * plan.slot_bytes + y_of_slot + lane * y_pitch,
                static_cast<const T*>(e.y) + own_token * e.y_stride + place.start + place.column,
                2 * columns, barriers + 8 * slot);
    }
  };
  const UnitPlace first_place = place_of_unit(e, first_unit, kColumns);
  UnitPlace b_in = first_place;
  const auto bring_b = [&](bool with_y) {
    const std::uint32_t barrier = barriers + 8 * slot_in;
    const int units = units_here(b_in);
    const int columns = min(b_in.width - b_in.column, units * kColumns);
    const int bytes = columns * max_rank * kBytes;
    if (lane == 0) {
      expect_bytes(barrier, bytes + (e.add_inputs ? segment.rows * columns * 2 : 0) +
                                bytes_of_scales(plan, columns));
      copy_bulk(shared_address(ring) + slot_in * plan.slot_bytes,
                static_cast<const W*>(e.b[b_in.slice]) +
                    (segment.adapter * b_in.width + b_in.column) * max_rank,
                bytes, barrier, policy);
      bring_scales(plan, shared_address(ring) + slot_in * plan.slot_bytes + scales_of_slot,
                   b_in.slice, segment.adapter * b_in.width + b_in.column, columns, barrier,
                   policy);
    }
    __syncwarp();
    if (with_y) {
      bring_y(b_in, units, slot_in);
    }
    go_on(e, b_in, units, kColumns);
    slot_in = slot_in + 1 == plan.slots ? 0 : slot_in + 1;
  };
  int early = early_a;
#pragma unroll 1
  for (; early < plan.slots && b_in.unit < end_unit; ++early) {
    bring_b(false);
  }
  const int first_task = place_of_unit(e, block_unit, kColumns).slice * steps + warp;
  const int end_task =
      of_block.count > 0
          ? (place_of_unit(e, block_unit + of_block.count - 1, kColumns).slice + 1) * steps
          : 0;
  const auto scales_of = [&](int task) {  // that this thread has of h
    return scales_of_task(plan, task, end_task, steps, segment.adapter, s.max_rank, t, rank);
  };
  float4 a_scales = scales_of(first_task);
  const int stored = kEight && segment.rows == 1 ? 0 : g;  // row of this thread
  T* const y_row = static_cast<T*>(e.y) + 2 * kTiles * t +
                   __shfl_sync(0xFFFFFFFFU, own_token, stored) * e.y_stride;

  // x for the chains of this block, as many of them at a time as there is room for.
  const int first_chain = divide(block_pair, per_tiles);
  const int end_chain = divide(end_pair + tiles - 1, per_tiles);
  const int chain_bytes = 2 * plan.chain;
  const auto x_pitch_of = [&](int chains) {  // neighbouring rows on other banks
    return chains * chain_bytes + kClusteredPad;
  };
  int chains_at_once = end_chain - first_chain;
#pragma unroll 1
  while (chains_at_once > 1 && x_pitch_of(chains_at_once) * segment.rows > plan.x_bytes) {
    --chains_at_once;
  }
  const int x_pitch = x_pitch_of(chains_at_once);
  const int lines = (chains_at_once * chain_bytes + 511) / 512;  // of a row, a warp's copy each
  const float per_lines = inverse_of(lines);
  const auto bring_x = [&](int from_chain) {
#pragma unroll 1
    for (int item = warp; item < segment.rows * lines; item += warps) {
      const int row = divide(item, per_lines);
      const int at = (item - row * lines) * 256 + lane * 8;
      const int k = from_chain * plan.chain + at;
      const std::int64_t token = __shfl_sync(0xFFFFFFFFU, tile.own_x_row, row);
      if (at < chains_at_once * plan.chain) {
        const bool there = k < in_features;
        copy_sixteen(shared_address(x_rows) + row * x_pitch + at * 2,
                     static_cast<const T*>(s.x) + (there ? token * s.x_stride + k : 0),
                     there ? 16 : 0);
      }
    }
    await_own_copies();
    __syncthreads();  // x is there
  };
  const char* const x_row = x_rows + min(g, segment.rows - 1) * x_pitch + t * 8;
  OwnLanes own_lanes{0, 0, 0, s.slices * ((rank + 1) / 2 * 2), 0.0F};
  if constexpr (kOwned) {
    own_lanes = own_lanes_of(plan.owned, block, s.slices, rank);
  }
  if (thread == 0) {
    const int bytes_of_rows = segment.rows * static_cast<int>(sizeof(float));
    expect_bytes(sums_barrier, kChains * own_lanes.count * bytes_of_rows);
    if constexpr (kOwned) {  // whole fours
      expect_bytes(h_barrier, s.slices * ((rank + 3) / 4 * 4) * bytes_of_rows);
    }
  }
  await_cluster();  // all blocks are there, and their barriers
  if (plan.linked) {
    await_previous_kernel();
  }
  bring_x(first_chain);
  {
    UnitPlace place = first_place;
#pragma unroll 1
    for (int slot = early_a; slot < early; ++slot) {
      const int units = units_here(place);
      bring_y(place, units, slot);
      go_on(e, place, units, kColumns);
    }
  }

  int slot = 0;
  unsigned parity = 0;
  const auto next_slot = [&]() {
    if (++slot == plan.slots) {
      slot = 0;
      parity ^= 1;
    }
  };
  int at_hand = first_chain;  // of the chains whose x is there
  const auto more_x = [&]() {
    at_hand += chains_at_once;
    __syncthreads();  // what lies there has been read
    bring_x(at_hand);
  };
#pragma unroll 1
  for (int number = first_pair; number < end_pair; number += warps) {
    const Pair pair = pair_of(number);
#pragma unroll 1
    while (pair.chain >= at_hand + chains_at_once) {
      more_x();
    }
    const char* const x_chain = x_row + (pair.chain - at_hand) * chain_bytes;
    float sum[4] = {};
    int piece = 0;
#pragma unroll 1
    do {
      await_phase(barriers + 8 * slot, parity);
      const int end = min(pair.length - piece, plan.piece);
      const char* const a = ring + slot * plan.slot_bytes + g * plan.piece_pitch + t * 4 * kBytes;
      const char* const x = x_chain + 2 * piece;
      multiply_piece<T, W>(a, x, end, t, plan, sum);
      piece += plan.piece;
      __syncwarp();  // the slot has been read
      if (pair_in < end_pair) {
        bring_a();
      } else if (b_in.unit < end_unit) {
        bring_b(true);
      }
      next_slot();
    } while (piece < pair.length);
    if (2 * t < pair.lanes && g < segment.rows) {
      const std::uint32_t row =
          shared_address(sums) + (pair.chain * kClusteredRows + g) * plan.sums_pitch * 4;
      if constexpr (kOwned) {
        const int to = divide(number - pair.chain * tiles, own_lanes.per_block);
        const int own_tile = number - pair.chain * tiles - to * plan.owned;
        send_two(in_block(row + (own_tile * 8 + 2 * t) * 4, to), sum[0], sum[1],
                 in_block(sums_barrier, to));
      } else {
        const std::uint32_t at = row + (pair.slice * plan.lane_pitch + pair.first + 2 * t) * 4;
#pragma unroll 4
        for (int to = part.first; to < part.first + part.blocks; ++to) {
          send_two(in_block(at, to), sum[0], sum[1], in_block(sums_barrier, to));
        }
      }
    }
  }
#pragma unroll 1
  while (at_hand + chains_at_once < end_chain) {
    more_x();  // for the warps that go on
  }
  await_phase(sums_barrier, 0);
  if constexpr (kOwned) {
    share_lanes(plan, sums, shared_address(h_rows), h_barrier, own_lanes, segment.rows, rank);
    await_phase(h_barrier, 0);
  }

  // h as fragments, of the slices that this block needs.
  const float per_steps = inverse_of(steps);
#pragma unroll 1
  for (int task = first_task; task < end_task; task += warps) {
    const int slice = divide(task, per_steps);
    const int at = 16 * (task - slice * steps) + 4 * t;
    float4 whole = {};
    if (g < segment.rows && at < rank) {
      const int lane_at = slice * plan.lane_pitch + at;
      float4 all = kOwned ? load_shared<float4>(h_rows + (g * plan.h_pitch + lane_at) * 4)
                          : add_chains(sums + (g * plan.sums_pitch + lane_at) * 4,
                                       kClusteredRows * plan.sums_pitch * 4);
      multiply_by_scales(plan, a_scales, all);
      if (s.scale != nullptr) {
        all = {__fmul_rn(shrink_scale, all.x), __fmul_rn(shrink_scale, all.y),
               __fmul_rn(shrink_scale, all.z), __fmul_rn(shrink_scale, all.w)};
      }
      whole = {all.x, at + 1 < rank ? all.y : 0.0F, at + 2 < rank ? all.z : 0.0F,
               at + 3 < rank ? all.w : 0.0F};
    }
    a_scales = scales_of(task + warps);
    uint4 vectors[kVectors];
    to_vectors(fragment_of<T, H>(whole), vectors);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      reinterpret_cast<uint4*>(hidden)[(task * kVectors + v) * 32 + lane] = vectors[v];
    }
  }
  __syncthreads();  // h is there

  const float scale = tile.scale_of_row(g);
  // Fragment column 2 * t + c of tile j is column 2 * kTiles * t + 2 * j + c of a unit.
  const int own_column = (g / 2 * 2 * kTiles + g % 2) * max_rank * kBytes + t * 4 * kBytes;
  float* const staged = reinterpret_cast<float*>(x_rows + plan.x_bytes) + warp * kColumns;
  const int own_y = y_of_slot + min(g, segment.rows - 1) * y_pitch + t * 4 * kTiles;
  HiddenFragment<T, H> rows;
  int task_of_rows = -1;
  UnitPlace place = first_place;
#pragma unroll 1
  while (place.unit < end_unit) {
    const int units = units_here(place);
    const float b_scale = scale_of_all_columns(plan, place.slice, segment.adapter);
    await_phase(barriers + 8 * slot, parity);
    const char* const at_slot = ring + slot * plan.slot_bytes;
#pragma unroll 1
    for (int unit = 0; unit < units; ++unit) {
      const int column = place.column + unit * kColumns;
      if constexpr (kEight) {
        if (segment.rows == 1) {
          const T* const bias = static_cast<const T*>(e.bias[place.slice]);
          float sum[kTiles / 2][4] = {};
          multiply_eight_unit<T, H, kTiles>(at_slot + unit * unit_bytes, max_rank, rank, steps,
                                            place.slice, lane, hidden, plan.scales.e5m2, rows,
                                            task_of_rows, sum);
          finish_eight_unit<T, kTiles>(
              plan,
              {place.width - column, at_slot + y_of_slot + unit * kColumns * 2,
               at_slot + scales_of_slot + unit * kColumns * 4, b_scale, scale,
               bias == nullptr ? nullptr : bias + segment.adapter * place.width + column,
               y_row - 2 * kTiles * t + place.start + column, e.add_inputs},
              lane, staged, sum);
          continue;
        }
      }
      const char* const b = at_slot + unit * unit_bytes + own_column;
      const char* const before = at_slot + own_y + unit * kColumns * 2;
      ColumnsOfThread<kTiles> inputs;
      if constexpr (!kEight) {
        inputs.load(before);
      }
      float sum[kTiles][4] = {};
      multiply_unit<W>(b, max_rank, rank, steps, place.slice, lane, hidden, plan, rows,
                       task_of_rows, sum);
      multiply_by_scales(plan, at_slot + scales_of_slot + (unit * kColumns + 2 * kTiles * t) * 4,
                         b_scale, sum);
      if constexpr (kEight) {
        inputs.load(before);  // registers are few while codes are widened
      }
      const int left = g < segment.rows ? place.width - column - 2 * kTiles * t : 0;
      float delta[2 * kTiles];
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          delta[2 * j + c] = __fmul_rn(scale, sum[j][c]);
        }
      }
      if constexpr (kBias) {
        const T* const bias = static_cast<const T*>(e.bias[place.slice]);
        if (bias != nullptr) {
          ColumnsOfThread<kTiles>::add_bias(
              bias + segment.adapter * place.width + column + 2 * kTiles * t, left, delta);
        }
      }
      inputs.template store<T>(y_row + place.start + column, left, e.add_inputs, delta);
    }
    __syncwarp();  // the slot has been read
    if (b_in.unit < end_unit) {
      bring_b(true);
    }
    next_slot();
    go_on(e, place, units, kColumns);
  }
#endif
}

}  // namespace lora_bench::kernels
