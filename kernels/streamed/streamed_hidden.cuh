#pragma once

#include "kernels/asynchronous.cuh"
#include "kernels/dtype.cuh"
#include "kernels/link.cuh"
#include "kernels/streamed/streamed.h"
#include "kernels/streamed/streamed_products.cuh"

// h of all rows, made by two warps of every block while W streams. K is cut into 32 splits; a warp
// takes a split of 16 lanes of an active adapter, multiplies it by all rows of x, and writes the
// sums of the rows that are the adapter's. Once all are there every block adds the splits in turn,
// into its own shared memory: a row's bits do not depend on the rows around it. Blocks meet at a
// counter; the last to have read sets it to 0 for the next launch, which touches it only when this
// one has ended.
namespace lora_bench::kernels {

constexpr int kHiddenWarps = 2;
constexpr int kHiddenAhead = 4;  // groups of 32 columns that are under way at once

// A split of 16 lanes of an adapter, of all slices.
struct HiddenTask {
  int split, first_lane, group;
};
__device__ inline HiddenTask hidden_task(const ShrinkParams& shrink, int task) {
  const int units = static_cast<int>((shrink.max_rank + kStreamedRows - 1) / kStreamedRows);
  HiddenTask of = {};
  of.split = task % static_cast<int>(kStreamedSplits);
  task /= static_cast<int>(kStreamedSplits);
  of.first_lane = task % units * static_cast<int>(kStreamedRows);
  of.group = task / units;
  return of;
}
__device__ inline int hidden_tasks(const ShrinkParams& shrink) {
  return static_cast<int>((shrink.max_rank + kStreamedRows - 1) / kStreamedRows * kStreamedSplits) *
         shrink.active;
}

// What a lane has of a task: of A rows lane / 4 and lane / 4 + 8, zeros from the rank and K on, and
// which of its four sums are of rows of the adapter. All of it is there before x may be read.
template <typename T>
struct HiddenLanes {
  std::int64_t at;  // of the lower row in A of a slice
  std::int64_t eight_rows;
  int depth;
  bool low, high;
  bool owned[4] = {};

  __device__ HiddenLanes(const ShrinkParams& shrink, const HiddenTask& task, int lane)
      : eight_rows(8 * shrink.in_features), depth(static_cast<int>(shrink.in_features)) {
    const int id = shrink.active_ids[task.group];
    const int rank = shrink.rank[id];
    const int row = task.first_lane + lane / 4;
    at = (id * shrink.max_rank + row) * shrink.in_features + lane % 4 * 8;
    low = row < rank;
    high = row + 8 < rank;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = lane % 4 * 2 + i % 2;
      owned[i] =
          token < shrink.tokens && row + i / 2 * 8 < rank && shrink.adapter_of_token[token] == id;
    }
  }
  __device__ void load(const void* a, int column, uint4& of_low, uint4& of_high) const {
    const T* const from = static_cast<const T*>(a) + at + column;
    const bool inside = column < depth;
    of_low = low && inside ? *reinterpret_cast<const uint4*>(from) : uint4{};
    of_high = high && inside ? *reinterpret_cast<const uint4*>(from + eight_rows) : uint4{};
  }
  // [split][slice][token][lane]
  __device__ void put(const StreamedAdapters& adapters, const HiddenTask& task, int slice,
                      const float (&sum)[4], int lane) const {
    const ShrinkParams& shrink = adapters.shrink;
    const std::int64_t part = std::int64_t{task.split} * shrink.slices + slice;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = lane % 4 * 2 + i % 2;
      const int row = task.first_lane + lane / 4 + i / 2 * 8;
      if (owned[i]) {
        __stcg(adapters.partials + (part * shrink.tokens + token) * shrink.max_rank + row, sum[i]);
      }
    }
  }
};

// What this warp has written is there for whoever sees it.
__device__ inline void arrive_at(std::uint32_t* met) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(met) : "memory");
}

template <typename T>
__device__ void multiply_tasks(const StreamedParams& params, const StreamedAdapters& adapters,
                               int warp) {
  constexpr int kGroup = static_cast<int>(kStreamedGroup);
  const ShrinkParams& shrink = adapters.shrink;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int tasks = hidden_tasks(shrink);
  const int workers = kHiddenWarps * static_cast<int>(gridDim.x);
  const int groups = static_cast<int>(shrink.in_features) / kGroup;
  const int groups_each =
      (groups + static_cast<int>(kStreamedSplits) - 1) / static_cast<int>(kStreamedSplits);
  const StreamedRows<T> rows(params, lane);
  bool waited = false;
  for (int at = warp * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x); at < tasks;
       at += workers) {
    const HiddenTask task = hidden_task(shrink, at);
    const HiddenLanes<T> lanes(shrink, task, lane);
    const int first = task.split * groups_each;
    const int last = min(first + groups_each, groups);
    const auto column_of = [&](int group) { return group < last ? group * kGroup : lanes.depth; };
    uint4 low[kHiddenAhead];
    uint4 high[kHiddenAhead];
    uint4 of_x[kHiddenAhead];
    const auto load_a = [&](int slice, int group) {
#pragma unroll
      for (int i = 0; i < kHiddenAhead; ++i) {
        lanes.load(shrink.a[slice], column_of(group + i), low[i], high[i]);
      }
    };
    const auto load_x = [&](int group) {
#pragma unroll
      for (int i = 0; i < kHiddenAhead; ++i) {
        of_x[i] = rows.load(column_of(group + i));
      }
    };
    load_a(0, first);
    if (!waited) {  // A is read before
      await_previous_kernel();
      waited = true;
    }
    load_x(first);
    for (int slice = 0; slice < shrink.slices; ++slice) {
      float sum[4] = {};
      for (int group = first; group < last; group += kHiddenAhead) {
#pragma unroll
        for (int i = 0; i < kHiddenAhead; ++i) {
          multiply_group<T>(sum, low[i], high[i], of_x[i]);
        }
        const bool goes_on = group + kHiddenAhead < last;
        if (goes_on || slice + 1 < shrink.slices) {
          load_a(goes_on ? slice : slice + 1, goes_on ? group + kHiddenAhead : first);
          load_x(goes_on ? group + kHiddenAhead : first);
        }
      }
      lanes.put(adapters, task, slice, sum, lane);
    }
    __syncwarp();
    if (lane == 0) {
      arrive_at(adapters.met);
    }
  }
  if (!waited) {
    await_previous_kernel();
  }
}

// Until `met` has come so far; what was written before is then there to be read. No fence: it would
// be one more trip to the L2.
__device__ inline void await_count(const std::uint32_t* met, std::uint32_t count) {
  std::uint32_t seen = 0;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(met) : "memory");
  } while (seen < count);
}

struct Scale {
  float value;
  bool used;
};

// Of the slices to which the block's columns belong. `thread` of those of kHiddenWarps.
template <typename T>
__device__ void make_hidden(const StreamedParams& params, const StreamedAdapters& adapters,
                            std::int64_t first_column, std::int64_t end_column, float* hidden,
                            int thread, std::uint32_t hidden_full) {
  constexpr int kThreads = 32 * kHiddenWarps;
  const ShrinkParams& shrink = adapters.shrink;
  const ExpandParams& expand = adapters.expand;
  const int max_rank = static_cast<int>(shrink.max_rank);
  const int all = shrink.slices * static_cast<int>(shrink.tokens) * max_rank;
  const int of_slice = static_cast<int>(shrink.tokens) * max_rank;
  const auto scale_of = [&](int at) {  // 0 where no adapter is
    const int id = at < of_slice ? shrink.adapter_of_token[at / max_rank] : -1;
    if (id < 0 || at % max_rank >= shrink.rank[id]) {
      return Scale{0, false};
    }
    return Scale{(shrink.scale != nullptr ? shrink.scale[id] : 1.0F) *
                     (expand.scale != nullptr ? expand.scale[id] : 1.0F),
                 true};
  };
  const Scale first_scale = scale_of(thread);  // known before the splits are
  multiply_tasks<T>(params, adapters, thread / 32);
  if (thread % 32 == 0) {
    await_count(adapters.met, static_cast<std::uint32_t>(hidden_tasks(shrink)));
  }
  __syncwarp();
  std::int64_t column = expand.first_column;
  for (int slice = 0; slice < shrink.slices; ++slice) {
    const std::int64_t begin = column;
    column += expand.width[slice];
    if (begin >= end_column || column <= first_column) {
      continue;  // no column of this block
    }
    for (int at = thread; at < of_slice; at += kThreads) {
      const Scale scale = at == thread ? first_scale : scale_of(at);
      float sum = 0;
      if (scale.used) {
        float part[kStreamedSplits];
#pragma unroll
        for (int split = 0; split < kStreamedSplits; ++split) {
          part[split] =
              __ldcg(adapters.partials + std::int64_t{split} * all + slice * of_slice + at);
        }
#pragma unroll
        for (int split = 0; split < kStreamedSplits; ++split) {
          sum += part[split];
        }
      }
      hidden[slice * of_slice + at] = sum * scale.value;
    }
  }
  arrive(hidden_full);
  asm volatile("bar.sync 2, %0;" ::"n"(kThreads) : "memory");
  if (thread == 0) {
    __threadfence();
    if (atomicAdd(adapters.met + 1, 1U) == gridDim.x - 1) {
      adapters.met[0] = 0;
      adapters.met[1] = 0;
    }
  }
}

}  // namespace lora_bench::kernels
