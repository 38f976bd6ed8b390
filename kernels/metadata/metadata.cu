#include "kernels/metadata/metadata.h"

#include "kernels/divide_up.h"
#include "kernels/plan/grouping.cuh"

namespace lora_bench::kernels {
namespace {

using grouping::Place;

constexpr int kThreads = 256;

// -1 where the row has no adapter.
__device__ std::int32_t slot_of(const EngineParams& engine, std::int64_t row) {
  const std::int32_t request = engine.request_of_row[row];
  if (request < 0 || request >= engine.requests) {
    return -1;
  }
  const std::int32_t slot = engine.slot_of_request[request];
  return slot >= 0 && slot < engine.slots ? slot : -1;
}

// Group 0 is the rows without an adapter, group g + 1 those of slot g.
struct KernelForm {
  KernelFormParams params;

  static constexpr bool kUnits = false;
  __device__ int groups() const { return params.engine.slots + 1; }
  __device__ std::int64_t rows() const { return params.engine.rows; }
  __device__ int group_of(std::int64_t row) const { return slot_of(params.engine, row) + 1; }
  __device__ std::int32_t units(int, std::int32_t rows) const { return rows > 0 ? 1 : 0; }
  __device__ bool idle(const Place& place) const { return place.all[0] == params.engine.rows; }
  __device__ void list(const Place& place, int group, std::int32_t rows, std::int32_t begin,
                       std::int32_t entry) const {
    if (blockIdx.x == 0 && rows > 0 && !idle(place)) {
      params.active_ids[entry] = group - 1;
      params.counts[entry] = rows;
      params.starts[entry] = begin;
    }
  }
  // Of a step without adapters no group is listed.
  __device__ void finish(const Place& place, std::int32_t groups) const {
    if (blockIdx.x != 0) {
      return;
    }
    const bool none = idle(place);
    const std::int32_t active = none ? 0 : groups;
    const std::int32_t room = params.engine.slots + 1;
    for (int entry = active + static_cast<int>(threadIdx.x); entry <= room;
         entry += static_cast<int>(blockDim.x)) {
      if (entry < room) {
        params.active_ids[entry] = -1;
        params.counts[entry] = 0;
      }
      params.starts[entry] = entry == active && !none ? params.engine.rows : 0;
    }
    if (threadIdx.x == 0) {
      *params.active = active;
      *params.no_adapter = none ? 1 : 0;
    }
  }
  __device__ void put(const Place&, std::int64_t row, int group, std::int32_t to) const {
    params.token_order[to] = static_cast<std::int32_t>(row);
    params.adapter_of_token[row] = group - 1;
  }
};

// Group g < slots is slot g; group `slots` is the rows without an adapter. A unit is a segment: the
// row that begins one writes it.
struct ChunkedForm {
  ChunkedFormParams params;

  static constexpr bool kUnits = true;
  __device__ int groups() const { return params.engine.slots + 1; }
  __device__ std::int64_t rows() const { return params.engine.rows; }
  __device__ int group_of(std::int64_t row) const {
    const std::int32_t slot = slot_of(params.engine, row);
    return slot < 0 ? params.engine.slots : slot;
  }
  __device__ bool has_segments(int group) const {
    return group < params.engine.slots || params.idle_segments;
  }
  __device__ std::int32_t units(int group, std::int32_t rows) const {
    return has_segments(group) ? (rows + params.chunk - 1) / params.chunk : 0;
  }
  __device__ void list(const Place&, int, std::int32_t, std::int32_t, std::int32_t) const {}
  // Starts after the last segment, ranks and scales are shared among the blocks.
  __device__ void finish(const Place& place, std::int32_t segments) const {
    const int thread = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    const int threads = static_cast<int>(gridDim.x * blockDim.x);
    const std::int32_t slots = params.engine.slots;
    const std::int32_t end = params.engine.rows - (params.idle_segments ? 0 : place.all[slots]);
    for (int entry = segments + thread; entry <= params.most_segments; entry += threads) {
      params.segment_starts[entry] = end;
    }
    for (int slot = thread; slot < slots + (params.idle_segments ? 1 : 0); slot += threads) {
      params.ranks[slot] = slot < slots ? params.rank[slot] : 0;
      params.scales[slot] = slot < slots ? params.scale[slot] : 0.0F;
    }
    if (thread == 0) {
      *params.segments = segments;
      *params.chunk_out = params.chunk;
    }
  }
  __device__ void put(const Place& place, std::int64_t row, int group, std::int32_t to) const {
    params.permutation[to] = static_cast<std::int32_t>(row);
    const std::int32_t in_group = to - place.begin[group];
    if (has_segments(group) && in_group % params.chunk == 0) {
      const std::int32_t segment = place.unit[group] + in_group / params.chunk;
      params.segment_starts[segment] = to;
      params.adapter_of_segment[segment] = group;
    }
  }
};

// What a warp, a block or all before know of runs.
struct Runs {
  std::int32_t count;  // runs that begin there
  std::int32_t first;  // row that begins the first of them, or kNone
  std::int32_t last;   // row that begins the last, or kNone
};
constexpr std::int32_t kNone = -1;

// A warp owns neighbouring rows, as in grouping.cuh. A row whose slot is not that of the row before
// begins a run: it writes its start and its slot, and the length of the run before it, whose start
// it knows from the scan. The last row writes the length of the last run.
__global__ void __launch_bounds__(grouping::kMostThreads)
    build_prefill_form(const __grid_constant__ PrefillFormParams params, int rounds) {
  __shared__ Runs of_warp[kPlanMostWarps];
  __shared__ Runs of_block;
  __shared__ std::int32_t longest_of_block;
  __shared__ std::int32_t some_adapter_of_block;
  const EngineParams& engine = params.engine;
  const int lane = static_cast<int>(threadIdx.x) % grouping::kLanes;
  const int warp = static_cast<int>(threadIdx.x) / grouping::kLanes;
  const int warps = static_cast<int>(blockDim.x) / grouping::kLanes;
  const std::int64_t first_row =
      (std::int64_t{blockIdx.x} * warps + warp) * rounds * grouping::kLanes;
  if (threadIdx.x == 0) {
    longest_of_block = 0;
    some_adapter_of_block = 0;
  }
  const auto begins = [&](std::int64_t row, std::int32_t slot) {
    return row < engine.rows && (row == 0 || slot_of(engine, row - 1) != slot);
  };

  Runs mine{0, kNone, kNone};
  bool adapter = false;
  for (int round = 0; round < rounds; ++round) {
    const std::int64_t row = first_row + round * grouping::kLanes + lane;
    const std::int32_t slot = row < engine.rows ? slot_of(engine, row) : -1;
    adapter = adapter || slot >= 0;
    const unsigned ballot = __ballot_sync(grouping::kAllLanes, begins(row, slot));
    if (ballot != 0) {
      const auto base = static_cast<std::int32_t>(first_row + round * grouping::kLanes);
      mine.first = mine.first == kNone ? base + __ffs(static_cast<int>(ballot)) - 1 : mine.first;
      mine.last = base + 31 - __clz(static_cast<int>(ballot));
      mine.count += __popc(ballot);
    }
  }
  __syncthreads();  // the block's totals are cleared
  if (__any_sync(grouping::kAllLanes, adapter) && lane == 0) {
    some_adapter_of_block = 1;
  }
  if (lane == 0) {
    of_warp[warp] = mine;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    Runs all{0, kNone, kNone};
    for (int other = 0; other < warps; ++other) {
      all.count += of_warp[other].count;
      all.last = max(all.last, of_warp[other].last);
    }
    of_block = all;
  }
  grouping::sync_blocks();
  std::int32_t run = 0;
  std::int32_t last = kNone;
  for (unsigned block = 0; block < blockIdx.x; ++block) {
    const Runs other = *grouping::of_block(&of_block, block);
    run += other.count;
    last = max(last, other.last);
  }
  for (int other = 0; other < warp; ++other) {
    run += of_warp[other].count;
    last = max(last, of_warp[other].last);
  }

  std::int32_t longest = 0;
  for (int round = 0; round < rounds; ++round) {
    const std::int64_t row = first_row + round * grouping::kLanes + lane;
    const std::int32_t slot = row < engine.rows ? slot_of(engine, row) : -1;
    const bool begin = begins(row, slot);
    const unsigned ballot = __ballot_sync(grouping::kAllLanes, begin);
    const unsigned earlier = ballot & (grouping::bit_if(true, lane) - 1U);
    const auto base = static_cast<std::int32_t>(first_row + round * grouping::kLanes);
    const std::int32_t own = run + __popc(earlier);
    // Where the run that ends before this row began.
    const std::int32_t before = earlier != 0 ? base + 31 - __clz(static_cast<int>(earlier)) : last;
    if (begin) {
      params.starts[own] = static_cast<std::int32_t>(row);
      params.adapters[own] = slot;
      if (own > 0) {
        params.lengths[own - 1] = static_cast<std::int32_t>(row) - before;
        longest = max(longest, static_cast<std::int32_t>(row) - before);
      }
    }
    if (row == engine.rows - 1) {
      const std::int32_t of_last = begin ? static_cast<std::int32_t>(row) : before;
      const std::int32_t runs = own + (begin ? 1 : 0);
      params.lengths[runs - 1] = engine.rows - of_last;
      longest = max(longest, engine.rows - of_last);
      *params.batch_size = runs;
    }
    run += __popc(ballot);
    last = ballot != 0 ? base + 31 - __clz(static_cast<int>(ballot)) : last;
  }
  atomicMax(&longest_of_block, longest);
  grouping::sync_blocks();
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    std::int32_t most = 0;
    std::int32_t some = 0;
    for (unsigned block = 0; block < gridDim.x; ++block) {
      most = max(most, *grouping::of_block(&longest_of_block, block));
      some |= *grouping::of_block(&some_adapter_of_block, block);
    }
    *params.longest = most;
    *params.tokens = engine.rows;
    *params.no_adapter = some == 0 ? 1 : 0;
    if (engine.rows == 0) {
      *params.batch_size = 0;
    }
  }
  grouping::sync_blocks();  // no block leaves while the first reads its memory
}

__global__ void __launch_bounds__(kThreads)
    build_sampler_form(const __grid_constant__ SamplerFormParams params) {
  const std::int64_t row = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row < params.engine.rows) {
    const std::int32_t slot = slot_of(params.engine, row);
    params.adapters[row] = slot;
    params.padded[row] =
        row + std::int64_t{slot < 0 ? params.engine.slots - 1 : slot} * params.engine.rows;
  }
}

__global__ void __launch_bounds__(kThreads)
    build_embedding_form(const __grid_constant__ EmbeddingFormParams params) {
  const std::int64_t row = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row < params.engine.rows) {
    const std::int64_t slot = max(slot_of(params.engine, row), 0);
    params.extra[row] = slot * params.extra_vocabulary;
    params.table[row] = slot * (params.vocabulary + params.extra_vocabulary);
  }
}

dim3 blocks_of_rows(std::int32_t rows) {
  return dim3(static_cast<unsigned>(divide_up(rows, std::int64_t{kThreads})));
}

}  // namespace

cudaError_t launch_kernel_form(const KernelFormParams& params, const PlanTuning& tuning,
                               cudaStream_t stream) {
  return grouping::launch_grouping(KernelForm{params}, tuning, plan_bits(params.engine.slots),
                                   params.engine.rows, stream);
}

cudaError_t launch_chunked_form(const ChunkedFormParams& params, const PlanTuning& tuning,
                                cudaStream_t stream) {
  return grouping::launch_grouping(ChunkedForm{params}, tuning, plan_bits(params.engine.slots),
                                   params.engine.rows, stream);
}

cudaError_t launch_prefill_form(const PrefillFormParams& params, const PlanTuning& tuning,
                                cudaStream_t stream) {
  return grouping::launch_cluster(build_prefill_form, params, tuning, params.engine.rows, stream);
}

cudaError_t launch_sampler_form(const SamplerFormParams& params, cudaStream_t stream) {
  if (params.engine.rows == 0) {
    return cudaSuccess;
  }
  build_sampler_form<<<blocks_of_rows(params.engine.rows), kThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

cudaError_t launch_embedding_form(const EmbeddingFormParams& params, cudaStream_t stream) {
  if (params.engine.rows == 0) {
    return cudaSuccess;
  }
  build_embedding_form<<<blocks_of_rows(params.engine.rows), kThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace lora_bench::kernels
