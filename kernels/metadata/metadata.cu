#include "kernels/metadata/metadata.h"

#include <bit>

#include "kernels/divide_up.h"
#include "kernels/metadata/engine.cuh"
#include "kernels/plan/grouping.cuh"

namespace lora_bench::kernels {
namespace {

using grouping::Place;

constexpr int kThreads = 256;

// Group 0 is the rows without an adapter, group g + 1 those of slot g.
struct KernelForm {
  KernelFormParams params;

  static constexpr bool kUnits = false;
  __device__ int groups() const { return params.engine.slots + 1; }
  __device__ std::int64_t rows() const { return params.engine.rows; }
  __device__ int group_of(std::int64_t row) const { return slot_of(params.engine, row) + 1; }
  __device__ void begin() const {}
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
  int chunk_bits;  // 2 to the power of it is the chunk

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
    return has_segments(group) ? (rows + params.chunk - 1) >> chunk_bits : 0;
  }
  __device__ void list(const Place&, int, std::int32_t, std::int32_t, std::int32_t) const {}
  // The blocks share what is written beside the rows.
  __device__ static int thread() { return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); }
  __device__ static int threads() { return static_cast<int>(gridDim.x * blockDim.x); }
  __device__ void begin() const {
    const std::int32_t slots = params.engine.slots;
    for (int slot = thread(); slot < slots + (params.idle_segments ? 1 : 0); slot += threads()) {
      params.ranks[slot] = slot < slots ? params.rank[slot] : 0;
      params.scales[slot] = slot < slots ? params.scale[slot] : 0.0F;
    }
  }
  __device__ void finish(const Place& place, std::int32_t segments) const {
    const std::int32_t end =
        params.engine.rows - (params.idle_segments ? 0 : place.all[params.engine.slots]);
    for (int entry = segments + thread(); entry <= params.most_segments; entry += threads()) {
      params.segment_starts[entry] = end;
    }
    if (thread() == 0) {
      *params.segments = segments;
      *params.chunk_out = params.chunk;
    }
  }
  __device__ void put(const Place& place, std::int64_t row, int group, std::int32_t to) const {
    params.permutation[to] = static_cast<std::int32_t>(row);
    const std::int32_t in_group = to - place.begin[group];
    if (has_segments(group) && (in_group & (params.chunk - 1)) == 0) {
      const std::int32_t segment = place.unit[group] + (in_group >> chunk_bits);
      params.segment_starts[segment] = to;
      params.adapter_of_segment[segment] = group;
    }
  }
};

// What a warp or a block knows of the runs that begin in it: how many, and the row of the last one,
// -1 where there is none.
struct Runs {
  std::int32_t count;
  std::int32_t last;
};

// Of the lanes before `end`.
__device__ Runs runs_before(const Runs& of_lane, int end) {
  const bool counts = static_cast<int>(threadIdx.x) % grouping::kLanes < end;
  return {__reduce_add_sync(grouping::kAllLanes, counts ? of_lane.count : 0),
          __reduce_max_sync(grouping::kAllLanes, counts ? of_lane.last : -1)};
}

// The row of the last of these lanes, whose first stands for row `base`.
__device__ std::int32_t last_row(std::int32_t base, unsigned lanes) {
  return base + 31 - __clz(static_cast<int>(lanes));
}

// A warp owns neighbouring rows, as in grouping.cuh. A row whose slot is not that of the row before
// begins a run: it writes its start and its slot, and the length of the run before it, whose start
// it knows from the scan. The last row writes the length of the last run.
__global__ void __launch_bounds__(grouping::kMostThreads)
    build_prefill_form(const __grid_constant__ PrefillFormParams params, int rounds) {
  __shared__ Runs of_warp[kPlanMostWarps];
  __shared__ Runs of_block;
  __shared__ std::int32_t longest_of_all;  // of the first block
  __shared__ std::int32_t some_adapter;    // the same
  const EngineParams& engine = params.engine;
  const int lane = static_cast<int>(threadIdx.x) % grouping::kLanes;
  const int warp = static_cast<int>(threadIdx.x) / grouping::kLanes;
  const int warps = static_cast<int>(blockDim.x) / grouping::kLanes;
  const auto first_row = static_cast<std::int32_t>((std::int64_t{blockIdx.x} * warps + warp) *
                                                   rounds * grouping::kLanes);
  if (threadIdx.x == 0) {
    longest_of_all = 0;
    some_adapter = 0;
  }
  await_previous_kernel();
  // The slot of the lane's row, and the lanes whose rows begin runs.
  const auto look = [&](std::int32_t base, std::int32_t& slot) {
    const std::int32_t row = base + lane;
    slot = row < engine.rows ? slot_of(engine, row) : -1;
    std::int32_t before = __shfl_up_sync(grouping::kAllLanes, slot, 1);
    if (lane == 0 && row > 0 && row < engine.rows) {
      before = slot_of(engine, row - 1);
    }
    return __ballot_sync(grouping::kAllLanes, row < engine.rows && (row == 0 || before != slot));
  };

  Runs mine{0, -1};
  bool adapter = false;
  for (int round = 0; round < rounds; ++round) {
    const std::int32_t base = first_row + round * grouping::kLanes;
    std::int32_t slot = -1;
    const unsigned begins = look(base, slot);
    adapter = adapter || slot >= 0;
    mine.count += __popc(begins);
    mine.last = begins != 0 ? last_row(base, begins) : mine.last;
  }
  if (lane == 0) {
    of_warp[warp] = mine;
  }
  __syncthreads();
  const Runs of_lane = lane < warps ? of_warp[lane] : Runs{0, -1};
  Runs before = runs_before(of_lane, warp);
  if (gridDim.x > 1) {
    const Runs all = runs_before(of_lane, warps);
    if (threadIdx.x == 0) {
      of_block = all;
    }
    grouping::sync_blocks();
    const auto block = static_cast<unsigned>(lane);
    const Runs of_other = block < blockIdx.x ? *grouping::of_block(&of_block, block) : Runs{0, -1};
    const Runs earlier = runs_before(of_other, grouping::kLanes);
    before.count += earlier.count;
    before.last = max(before.last, earlier.last);
  }

  std::int32_t longest = 0;
  for (int round = 0; round < rounds; ++round) {
    const std::int32_t base = first_row + round * grouping::kLanes;
    const std::int32_t row = base + lane;
    std::int32_t slot = -1;
    const unsigned begins = look(base, slot);
    const bool begin = (begins & grouping::bit_if(true, lane)) != 0;
    const unsigned earlier = begins & (grouping::bit_if(true, lane) - 1U);
    const std::int32_t run = before.count + __popc(earlier);
    // Where the run that ends before this row began.
    const std::int32_t start = earlier != 0 ? last_row(base, earlier) : before.last;
    if (begin) {
      params.starts[run] = row;
      params.adapters[run] = slot;
      if (run > 0) {
        params.lengths[run - 1] = row - start;
        longest = max(longest, row - start);
      }
    }
    if (row == engine.rows - 1) {
      const std::int32_t of_last = begin ? row : start;
      const std::int32_t runs = run + (begin ? 1 : 0);
      params.lengths[runs - 1] = engine.rows - of_last;
      longest = max(longest, engine.rows - of_last);
      *params.batch_size = runs;
    }
    before.count += __popc(begins);
    before.last = begins != 0 ? last_row(base, begins) : before.last;
  }
  longest = __reduce_max_sync(grouping::kAllLanes, longest);
  const bool some = __any_sync(grouping::kAllLanes, adapter) != 0;
  if (lane == 0) {  // in the first block, which stays until all have written there
    atomicMax(grouping::of_block(&longest_of_all, 0), longest);
    atomicMax(grouping::of_block(&some_adapter, 0), some ? 1 : 0);
  }
  grouping::sync_blocks();  // nor does another leave while its runs are read
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    *params.longest = longest_of_all;
    *params.tokens = engine.rows;
    *params.no_adapter = some_adapter == 0 ? 1 : 0;
    if (engine.rows == 0) {
      *params.batch_size = 0;
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    build_sampler_form(const __grid_constant__ SamplerFormParams params) {
  await_previous_kernel();
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
  await_previous_kernel();
  const std::int64_t row = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row < params.engine.rows) {
    const std::int64_t slot = max(slot_of(params.engine, row), 0);
    params.extra[row] = slot * params.extra_vocabulary;
    params.table[row] = slot * (params.vocabulary + params.extra_vocabulary);
  }
}

// A thread for each row.
template <typename Params>
cudaError_t launch_rows(void (*kernel)(Params), const Params& params, cudaStream_t stream) {
  if (params.engine.rows == 0) {
    return cudaSuccess;
  }
  cudaLaunchAttribute link = {};
  link.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  link.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim =
      dim3(static_cast<unsigned>(divide_up(params.engine.rows, std::int64_t{kThreads})));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  config.attrs = &link;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, params);
}

}  // namespace

cudaError_t launch_kernel_form(const KernelFormParams& params, const PlanTuning& tuning,
                               cudaStream_t stream) {
  return grouping::launch_grouping(KernelForm{params}, tuning, plan_bits(params.engine.slots),
                                   params.engine.rows, stream);
}

cudaError_t launch_chunked_form(const ChunkedFormParams& params, const PlanTuning& tuning,
                                cudaStream_t stream) {
  if (params.chunk <= 0 || !std::has_single_bit(static_cast<unsigned>(params.chunk))) {
    return cudaErrorInvalidValue;
  }
  const ChunkedForm form{params, std::countr_zero(static_cast<unsigned>(params.chunk))};
  return grouping::launch_grouping(form, tuning, plan_bits(params.engine.slots), params.engine.rows,
                                   stream);
}

cudaError_t launch_prefill_form(const PrefillFormParams& params, const PlanTuning& tuning,
                                cudaStream_t stream) {
  return grouping::launch_cluster(build_prefill_form, params, tuning, params.engine.rows, stream);
}

cudaError_t launch_sampler_form(const SamplerFormParams& params, cudaStream_t stream) {
  return launch_rows(build_sampler_form, params, stream);
}

cudaError_t launch_embedding_form(const EmbeddingFormParams& params, cudaStream_t stream) {
  return launch_rows(build_embedding_form, params, stream);
}

}  // namespace lora_bench::kernels
