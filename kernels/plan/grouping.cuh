#pragma once

#include <cooperative_groups.h>

#include <algorithm>
#include <cstdint>

#include "kernels/link.cuh"
#include "kernels/plan/plan_tuning.h"

// A stable counting sort of rows into groups in one launch, for forms that differ in what a row's
// group is and in what is written of groups and rows. A form is a parameter struct with
//   int groups() const                      how many there are
//   std::int64_t rows() const               rows to place
//   int group_of(std::int64_t row) const    of a row that there is; groups() where it is in none
//   begin()                                 called by every thread, before rows are counted
//   units(group, rows)                      what is counted beside rows, of a group with so many;
//   kUnits                                  whether put() asks where a group and its units begin
//   list(place, group, rows, begin, unit)   called for every group by every block, once both sums
//                                           over the groups before it are known
//   finish(place, units)                    called by every thread of every block at the end
//   put(place, row, group, to)              called for every row with its place in the order
namespace lora_bench::kernels {
namespace grouping {

constexpr int kLanes = 32;
constexpr unsigned kAllLanes = 0xFFFFFFFFU;
constexpr int kMostThreads = kPlanMostWarps * kLanes;

__device__ inline unsigned bit_if(bool yes, int bit) { return yes ? 1U << bit : 0U; }

// The lanes of this warp that hold the same value. Its time does not depend on the values, unlike
// that of atomics on shared counters. `value` has at most `bits` bits.
__device__ inline unsigned lanes_with_same(unsigned value, int bits) {
  unsigned same = kAllLanes;
  for (int bit = 0; bit < bits; ++bit) {
    const bool set = (value & bit_if(true, bit)) != 0;
    const unsigned setters = __ballot_sync(kAllLanes, set);
    same &= set ? setters : ~setters;
  }
  return same;
}

// Where a thread stands, and what its block keeps in shared memory: rows of one word a group.
struct Place {
  int lane;
  int groups;
  int bits;
  int rounds;
  std::int64_t first_row;  // of the warp
  std::int32_t* mine;      // of the warp: rows seen, later rows of the block's earlier warps
  std::int32_t* block;     // rows of the block; read by the other blocks of the cluster
  std::int32_t* all;       // rows of all blocks
  std::int32_t* start;     // where the block's rows begin in the order
  std::int32_t* begin;     // where the rows of all blocks begin, and the units: of forms that have
  std::int32_t* unit;      // them (kUnits)
  std::int32_t* units;     // of all groups
};

// Some rounds of a warp: 32 rows each. `group` is `groups` past the end.
struct Rounds {
  std::int64_t first_row;
  int group[kPlanRoundsInFlight];
  unsigned same[kPlanRoundsInFlight];  // lanes of its group
  int count;                           // rounds that there are
};

template <typename Form>
__device__ Rounds read_rounds(const Form& form, const Place& place, int round) {
  Rounds rounds;
  rounds.first_row = place.first_row + round * kLanes + place.lane;
#pragma unroll
  for (int i = 0; i < kPlanRoundsInFlight; ++i) {
    const std::int64_t row = rounds.first_row + i * kLanes;
    const bool is_row = round + i < place.rounds && row < form.rows();
    rounds.group[i] = is_row ? form.group_of(row) : place.groups;
  }
#pragma unroll
  for (int i = 0; i < kPlanRoundsInFlight; ++i) {
    if (round + i < place.rounds) {
      rounds.same[i] = lanes_with_same(static_cast<unsigned>(rounds.group[i]), place.bits);
    }
  }
  rounds.count = min(place.rounds - round, kPlanRoundsInFlight);
  return rounds;
}

// Calls visit(row, group, lanes of its group) round by round. A round's writes to shared memory
// are seen by the next.
template <typename Visit>
__device__ void for_each_round(const Rounds& rounds, Visit visit) {
#pragma unroll
  for (int i = 0; i < kPlanRoundsInFlight; ++i) {
    if (i < rounds.count) {  // the same for the whole warp
      visit(rounds.first_row + i * kLanes, rounds.group[i], rounds.same[i]);
      __syncwarp();
    }
  }
}

// What the blocks of the cluster have written to shared memory is seen by all of them after both.
__device__ inline void arrive_in_cluster() {
#if __CUDA_ARCH__ >= 900
  if (gridDim.x > 1) {
    cooperative_groups::this_cluster().barrier_arrive();
  }
#endif
}

__device__ inline void await_cluster() {
#if __CUDA_ARCH__ >= 900
  if (gridDim.x > 1) {
    cooperative_groups::this_cluster().barrier_wait();
    return;
  }
#endif
  __syncthreads();
}

__device__ inline void sync_blocks() {
  arrive_in_cluster();
  await_cluster();
}

// The same variable in the shared memory of another block of the cluster.
template <typename Value>
__device__ Value* of_block(Value* word, unsigned block) {
#if __CUDA_ARCH__ >= 900
  if (gridDim.x > 1) {
    return cooperative_groups::this_cluster().map_shared_rank(word, block);
  }
#endif
  return word;
}

// Per group: rows of the block, and in each warp's row the rows of the warps before it.
__device__ inline void scan_warps(std::int32_t* warp_rows, int warps, const Place& place) {
  constexpr int kTogether = 8;  // loads under way before the first store
  for (int group = static_cast<int>(threadIdx.x); group < place.groups;
       group += static_cast<int>(blockDim.x)) {
    std::int32_t rows = 0;
#pragma unroll 1
    for (int first = 0; first < warps; first += kTogether) {
      std::int32_t of_warp[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        of_warp[i] = first + i < warps ? warp_rows[(first + i) * place.groups + group] : 0;
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        if (first + i < warps) {
          warp_rows[(first + i) * place.groups + group] = rows;
        }
        rows += of_warp[i];
      }
    }
    place.block[group] = rows;
    if (gridDim.x == 1) {  // nothing to add from other blocks
      place.all[group] = rows;
      place.start[group] = 0;
    }
  }
}

// Per group: rows of all blocks, and in `start` the rows of the blocks before this one.
__device__ inline void scan_blocks(const Place& place) {
  constexpr unsigned kTogether = 8;
  for (int group = static_cast<int>(threadIdx.x); group < place.groups;
       group += static_cast<int>(blockDim.x)) {
    std::int32_t rows = 0;
    std::int32_t before = 0;
#pragma unroll 1
    for (unsigned first = 0; first < gridDim.x; first += kTogether) {
#pragma unroll
      for (unsigned i = 0; i < kTogether; ++i) {
        const unsigned block = first + i;
        const std::int32_t own = block < gridDim.x ? *of_block(place.block + group, block) : 0;
        before += block < blockIdx.x ? own : 0;
        rows += own;
      }
    }
    place.all[group] = rows;
    place.start[group] = before;
  }
}

// A number of rows below, a number of units above: one scan for both.
__device__ inline unsigned long long rows_and_units(std::int32_t rows, std::int32_t units) {
  return static_cast<unsigned>(rows) + (static_cast<unsigned long long>(units) << 32);
}

// The sum of `value` over the lanes before this one; `total` over all of the warp.
__device__ inline unsigned long long sum_of_lanes_before(unsigned long long value,
                                                         unsigned long long& total) {
  const int lane = static_cast<int>(threadIdx.x % kLanes);
  unsigned long long upto = value;
#pragma unroll
  for (int distance = 1; distance < kLanes; distance *= 2) {
    const unsigned long long other =
        __shfl_up_sync(kAllLanes, upto, static_cast<unsigned>(distance));
    upto += lane >= distance ? other : 0ULL;
  }
  total = __shfl_sync(kAllLanes, upto, kLanes - 1);
  return upto - value;
}

// The same over the threads of the block.
__device__ inline unsigned long long sum_before(unsigned long long value,
                                                unsigned long long& total) {
  __shared__ unsigned long long of_warp[kMostThreads / kLanes];
  const int lane = static_cast<int>(threadIdx.x % kLanes);
  const int warp = static_cast<int>(threadIdx.x / kLanes);
  unsigned long long of_own_warp = 0;
  const unsigned long long in_warp = sum_of_lanes_before(value, of_own_warp);
  if (lane == 0) {
    of_warp[warp] = of_own_warp;
  }
  __syncthreads();
  // Every warp scans the sums of all warps by itself: one barrier less.
  const bool is_warp = lane < static_cast<int>(blockDim.x) / kLanes;
  const unsigned long long before = sum_of_lanes_before(is_warp ? of_warp[lane] : 0ULL, total);
  return in_warp + __shfl_sync(kAllLanes, before, warp);
}

// Per group: where its rows begin in the order, those of this block. A thread owns neighbouring
// groups; of few groups the first warp has all, and the others go on.
template <typename Form>
__device__ void scan_groups(const Form& form, const Place& place) {
  constexpr int kFewEach = 4;
  const bool few = place.groups <= kFewEach * kLanes;
  const int threads = few ? kLanes : static_cast<int>(blockDim.x);
  const int each = (place.groups + threads - 1) / threads;
  const int first = min(static_cast<int>(threadIdx.x) * each, place.groups);
  const int last = min(first + each, place.groups);
  if (few && static_cast<int>(threadIdx.x) >= kLanes) {
    return;
  }
  unsigned long long sum = 0;
  for (int group = first; group < last; ++group) {
    const std::int32_t rows = place.all[group];
    sum += rows_and_units(rows, form.units(group, rows));
  }
  unsigned long long total = 0;
  unsigned long long before = few ? sum_of_lanes_before(sum, total) : sum_before(sum, total);
  for (int group = first; group < last; ++group) {
    const std::int32_t rows = place.all[group];
    const auto begin = static_cast<std::int32_t>(before & 0xFFFFFFFFULL);
    const auto unit = static_cast<std::int32_t>(before >> 32);
    place.start[group] += begin;
    if constexpr (Form::kUnits) {
      place.begin[group] = begin;
      place.unit[group] = unit;
    }
    form.list(place, group, rows, begin, unit);
    before += rows_and_units(rows, form.units(group, rows));
  }
  if (threadIdx.x == 0) {
    *place.units = static_cast<std::int32_t>(total >> 32);
  }
}

// What the blocks of a cluster do. A warp owns neighbouring rows and counts its rows of each group;
// scans over warps, blocks of the cluster and groups tell where they go; then each warp walks its
// rows again and writes their numbers there. Bound: latency, of which the barriers are most; the
// bytes are two words a row.
template <typename Form>
__device__ __forceinline__ void group_rows_by(const Form& form, int rounds, int bits) {
  extern __shared__ std::int32_t shared[];
  __shared__ std::int32_t units_of_all;
  const int warps = static_cast<int>(blockDim.x) / kLanes;
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  Place place;
  place.lane = static_cast<int>(threadIdx.x) % kLanes;
  place.groups = form.groups();
  place.bits = bits;
  place.rounds = rounds;
  place.first_row = (std::int64_t{blockIdx.x} * warps + warp) * rounds * kLanes;
  place.mine = shared + warp * place.groups;
  place.block = shared + warps * place.groups;
  place.all = place.block + place.groups;
  place.start = place.all + place.groups;
  place.begin = place.start + place.groups;
  place.unit = place.begin + place.groups;
  place.units = &units_of_all;

  for (int group = place.lane; group < place.groups; group += kLanes) {
    place.mine[group] = 0;
  }
  __syncwarp();
  await_previous_kernel();
  form.begin();
  Rounds kept;
  for (int round = 0; round < rounds; round += kPlanRoundsInFlight) {
    kept = read_rounds(form, place, round);
    for_each_round(kept, [&](std::int64_t, int group, unsigned same) {
      if (group < place.groups && __ffs(static_cast<int>(same)) == place.lane + 1) {
        place.mine[group] += __popc(same);
      }
    });
  }
  __syncthreads();  // all warps have counted
  scan_warps(shared, warps, place);
  sync_blocks();  // all blocks have their rows in `block`; one alone has them in `all`
  if (gridDim.x > 1) {
    scan_blocks(place);
    arrive_in_cluster();  // this block reads the memory of others no more
    __syncthreads();      // `all` is whole
  }
  scan_groups(form, place);
  __syncthreads();  // `start` is whole, and the units of all groups are known
  for (int round = 0; round < rounds; round += kPlanRoundsInFlight) {
    if (rounds > kPlanRoundsInFlight) {  // else all of them are still here
      kept = read_rounds(form, place, round);
    }
    for_each_round(kept, [&](std::int64_t row, int group, unsigned same) {
      std::int32_t to = 0;
      if (group < place.groups) {
        const unsigned earlier = same & (bit_if(true, place.lane) - 1U);
        to = place.start[group] + place.mine[group] + __popc(earlier);
      }
      __syncwarp();  // all lanes have read before one of them moves on
      if (group < place.groups) {
        form.put(place, row, group, to);
        if (__ffs(static_cast<int>(same)) == place.lane + 1) {
          place.mine[group] += __popc(same);
        }
      }
    });
  }
  form.finish(place, units_of_all);
  if (gridDim.x > 1) {
    await_cluster();  // no block leaves while another reads its memory
  }
}

template <typename Form>
__global__ void __launch_bounds__(kMostThreads)
    group_rows(const __grid_constant__ Form form, int rounds, int bits) {
  group_rows_by(form, rounds, bits);
}

// One launch whose shape depends on `tuning` alone, with the rounds that so many rows need before
// `more`.
template <typename... Kernel, typename Params, typename... More>
[[nodiscard]] cudaError_t launch_cluster(void (*kernel)(Kernel...), const Params& params,
                                         const PlanTuning& tuning, std::int64_t rows,
                                         cudaStream_t stream, More... more) {
  if (tuning.blocks == 0) {
    return cudaErrorInvalidValue;
  }
  constexpr std::int64_t kWithoutAsking = 47 * 1024;  // 48 KB, less what the kernel has by itself
  if (tuning.shared_bytes > kWithoutAsking) {
    const cudaError_t asked =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(std::max(tuning.shared_bytes, kPlanSharedBytes)));
    if (asked != cudaSuccess) {
      return asked;
    }
  }
  constexpr int kPortableBlocks = 8;
  if (tuning.blocks > kPortableBlocks) {
    const cudaError_t asked =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    if (asked != cudaSuccess) {
      return asked;
    }
  }
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = static_cast<unsigned>(tuning.blocks);
  attributes[1].val.clusterDim.y = 1;
  attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim =
      dim3(static_cast<unsigned>(tuning.blocks), static_cast<unsigned>(tuning.clusters));
  config.blockDim = dim3(static_cast<unsigned>(tuning.warps_per_block * kLanes));
  config.dynamicSmemBytes = static_cast<std::size_t>(tuning.shared_bytes);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = tuning.blocks > 1 ? 2 : 1;
  return cudaLaunchKernelEx(&config, kernel, params, static_cast<int>(plan_rounds(tuning, rows)),
                            more...);
}

template <typename Form>
[[nodiscard]] cudaError_t launch_grouping(const Form& form, const PlanTuning& tuning, int bits,
                                          std::int64_t rows, cudaStream_t stream) {
  return launch_cluster(group_rows<Form>, form, tuning, rows, stream, bits);
}

}  // namespace grouping
}  // namespace lora_bench::kernels
