#pragma once

#include "kernels/asynchronous.cuh"
#include "kernels/dtype.cuh"
#include "kernels/link.cuh"
#include "kernels/streamed/streamed.h"
#include "kernels/streamed/streamed_products.cuh"

// h of all rows, made by three warps of every block while W streams. K is cut into 32 splits; a
// task is a split of one slice and of two eights of lanes of active adapters, which share a product
// with all rows of x and may be of two adapters. Of its sums those of the adapters' rows are
// written as words that are never 0. A counter, raised without waiting for them, tells when to
// look; who then finds a 0 looks again. So no fence is between x and h: while W streams, a trip to
// the L2 takes 2 us, and four are left (x, words, counter, words). Every block adds the splits in
// an order that is always the same, into its own shared memory: a row's bits do not depend on the
// rows around it. Two sets of words take turns, one launch each; a launch writes one and sets the
// other, which the launch before it used, to 0. The last block to have read sets the counter to 0
// and gives the turn to the other set, for the next launch, which touches them only when this one
// has ended.
namespace lora_bench::kernels {

constexpr int kHiddenWarps = 3;
constexpr int kHiddenAhead = 4;  // groups of 32 columns that are under way at once
constexpr int kEight = 8;        // lanes of A that are one half of a product

__device__ inline int eights_of_adapter(const ShrinkParams& shrink) {
  return static_cast<int>(shrink.max_rank) / kEight;
}
__device__ inline int hidden_tasks(const ShrinkParams& shrink) {
  const int pairs = (shrink.active * eights_of_adapter(shrink) + 1) / 2;
  return pairs * static_cast<int>(kStreamedSplits) * shrink.slices;
}

// What a lane has of an eight: its row of A, none from the rank on or where there is no such eight,
// of which tokens among its two the sums are the adapter's, and which lane of the rank it is.
template <typename T>
struct HiddenEight {
  const T* row = nullptr;
  unsigned owned = 0;  // bit i: token lane % 4 * 2 + i
  int of_rank = 0;

  __device__ HiddenEight(const ShrinkParams& shrink, int slice, int eight, int lane) {
    const int each = eights_of_adapter(shrink);
    if (eight >= shrink.active * each) {
      return;
    }
    const int id = shrink.active_ids[eight / each];
    of_rank = eight % each * kEight + lane / 4;
    if (of_rank >= shrink.rank[id]) {
      return;
    }
    row = static_cast<const T*>(shrink.a[slice]) +
          (id * shrink.max_rank + of_rank) * shrink.in_features + lane % 4 * 8;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int token = lane % 4 * 2 + i;
      if (token < shrink.tokens && shrink.adapter_of_token[token] == id) {
        owned |= 1U << i;
      }
    }
  }
  __device__ uint4 load(int column, int depth) const {
    return row != nullptr && column < depth ? *reinterpret_cast<const uint4*>(row + column)
                                            : uint4{};
  }
};

constexpr std::uint32_t kMinusZero = 0x80000000U;  // adds nothing, and is no 0

__device__ inline void put_word(std::uint32_t* to, float sum) {
  const std::uint32_t bits = __float_as_uint(sum);
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(bits == 0 ? kMinusZero : bits)
               : "memory");
}
__device__ inline uint4 get_four_words(const std::uint32_t* from) {
  uint4 words;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(from)
               : "memory");
  return words;
}
__device__ inline std::uint32_t get_word(const std::uint32_t* from) {
  std::uint32_t word;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
  return word;
}

// [set][slice][token][lane][split]
struct HiddenWords {
  std::uint32_t* all;
  int of_slice, of_set;

  __device__ explicit HiddenWords(const StreamedAdapters& adapters)
      : all(adapters.words),
        of_slice(
            static_cast<int>(adapters.shrink.tokens * adapters.shrink.max_rank * kStreamedSplits)),
        of_set(adapters.shrink.slices * of_slice) {}
  __device__ std::uint32_t* of(unsigned set, int slice) const {
    return all + static_cast<int>(set) * of_set + slice * of_slice;
  }
  // By all threads that make h.
  __device__ void clear(unsigned set, int thread) const {
    auto* const words = reinterpret_cast<uint4*>(of(set, 0));
    for (int at = (static_cast<int>(blockIdx.x) * kHiddenWarps * 32 + thread); at < of_set / 4;
         at += static_cast<int>(gridDim.x) * kHiddenWarps * 32) {
      __stcg(words + at, uint4{});
    }
  }
};

// What one of eight lanes has of an element of h: four of its splits, as words.
struct HiddenPart {
  static constexpr int kLanes = static_cast<int>(kStreamedSplits) / 4;
  uint4 words;

  // Zeros where it is not used.
  __device__ void look(const std::uint32_t* of_slice, int at, bool used) {
    words = uint4{kMinusZero, kMinusZero, kMinusZero, kMinusZero};
    if (used) {
      words = get_four_words(of_slice + at * static_cast<int>(kStreamedSplits) +
                             static_cast<int>(threadIdx.x) % kLanes * 4);
    }
  }
  [[nodiscard]] __device__ bool all_there() const {
    return words.x != 0 && words.y != 0 && words.z != 0 && words.w != 0;
  }
  // Of all eight, in pairs; all of them get it.
  __device__ float sum() const {
    float total = (__uint_as_float(words.x) + __uint_as_float(words.y)) +
                  (__uint_as_float(words.z) + __uint_as_float(words.w));
#pragma unroll
    for (int apart = 1; apart < kLanes; apart *= 2) {
      total += __shfl_xor_sync(0xFFFFFFFFU, total, apart);
    }
    return total;
  }
};

// Which set of words is this launch's. Who has time asks for it: a warp that makes h would keep it
// in memory, and so ask for x a trip later.
struct HiddenTurn {
  std::uint32_t known;  // a barrier
  volatile unsigned* set;

  __device__ void ask(const StreamedAdapters& adapters) const {  // by one thread
    *set = get_word(adapters.met + 2);
    arrive(known);
  }
  [[nodiscard]] __device__ unsigned await() const {
    await_phase(known, 0);
    return *set;
  }
};

template <typename T>
__device__ void multiply_tasks(const StreamedParams& params, const StreamedAdapters& adapters,
                               const HiddenTurn& turn, int warp) {
  constexpr int kGroup = static_cast<int>(kStreamedGroup);
  constexpr int kSplits = static_cast<int>(kStreamedSplits);
  const ShrinkParams& shrink = adapters.shrink;
  const HiddenWords words(adapters);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int depth = static_cast<int>(shrink.in_features);
  const int max_rank = static_cast<int>(shrink.max_rank);
  const int tasks = hidden_tasks(shrink);
  const int groups_each = (depth / kGroup + kSplits - 1) / kSplits;
  const StreamedRows<T> rows(params, lane);
  bool waited = false;
  for (int task = warp * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x); task < tasks;
       task += kHiddenWarps * static_cast<int>(gridDim.x)) {
    const int split = task % kSplits;
    const int slice = task / kSplits % shrink.slices;
    const int pair = task / kSplits / shrink.slices;
    const HiddenEight<T> low(shrink, slice, 2 * pair, lane);
    const HiddenEight<T> high(shrink, slice, 2 * pair + 1, lane);
    const int first = split * groups_each * kGroup;
    const int last = min(first + groups_each * kGroup, depth);
    uint4 of_low[kHiddenAhead];
    uint4 of_high[kHiddenAhead];
    const auto load_a = [&](int column) {
#pragma unroll
      for (int i = 0; i < kHiddenAhead; ++i) {
        of_low[i] = low.load(column + i * kGroup, last);
        of_high[i] = high.load(column + i * kGroup, last);
      }
    };
    load_a(first);
    if (!waited) {  // A is read before
      await_previous_kernel();
      waited = true;
    }
    float sum[4] = {};
    for (int column = first; column < last; column += kHiddenAhead * kGroup) {
      uint4 of_x[kHiddenAhead];
#pragma unroll
      for (int i = 0; i < kHiddenAhead; ++i) {
        const int at = column + i * kGroup;
        of_x[i] = rows.load(at < last ? at : depth);  // not 0 times infinity
      }
#pragma unroll
      for (int i = 0; i < kHiddenAhead; ++i) {
        multiply_group<T>(sum, of_low[i], of_high[i], of_x[i]);
      }
      load_a(column + kHiddenAhead * kGroup);
    }
    std::uint32_t* const to = words.of(turn.await(), slice) + split;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const HiddenEight<T>& eight = i < 2 ? low : high;
      if ((eight.owned >> (i % 2) & 1U) != 0) {
        const int token = lane % 4 * 2 + i % 2;
        put_word(to + (token * max_rank + eight.of_rank) * kSplits, sum[i]);
      }
    }
    if (lane == 0) {
      asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(adapters.met) : "memory");
    }
  }
  if (!waited) {
    await_previous_kernel();
  }
}

// Of the slices to which the block's columns belong. `thread` of those of kHiddenWarps.
template <typename T>
__device__ void make_hidden(const StreamedParams& params, const StreamedAdapters& adapters,
                            std::int64_t first_column, std::int64_t end_column, float* hidden,
                            int thread, const HiddenTurn& turn, std::uint32_t hidden_full) {
  constexpr int kThreads = 32 * kHiddenWarps;
  constexpr int kLanes = HiddenPart::kLanes;
  constexpr int kRound = kThreads / kLanes;  // elements of all threads at a time
  constexpr int kRounds = 6;                 // that are under way at once
  const ShrinkParams& shrink = adapters.shrink;
  const ExpandParams& expand = adapters.expand;
  const int max_rank = static_cast<int>(shrink.max_rank);
  const int of_slice = static_cast<int>(shrink.tokens) * max_rank;
  constexpr int kSplits = static_cast<int>(kStreamedSplits);
  const auto rank_of = [&](int at) {  // of the adapter of that element's token
    const int id = at < of_slice ? shrink.adapter_of_token[at / max_rank] : -1;
    return id < 0 ? 0 : shrink.rank[id];
  };
  const auto used_of = [&](int first) {  // bit i: this thread's element of round i
    unsigned used = 0;
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      const int at = first + i * kRound + thread / kLanes;
      used |= (at % max_rank < rank_of(at) ? 1U : 0U) << i;
    }
    return used;
  };
  // Both are known before the splits are; scales wait where h goes.
  const unsigned used_at_first = used_of(0);
  for (int at = thread; at < of_slice; at += kThreads) {
    const int id = shrink.adapter_of_token[at / max_rank];
    const float scale = id < 0 ? 0.0F
                               : (shrink.scale != nullptr ? shrink.scale[id] : 1.0F) *
                                     (expand.scale != nullptr ? expand.scale[id] : 1.0F);
    for (int slice = 0; slice < shrink.slices; ++slice) {
      hidden[slice * of_slice + at] = scale;
    }
  }
  const HiddenWords words(adapters);
  multiply_tasks<T>(params, adapters, turn, thread / 32);
  const unsigned set = turn.await();
  words.clear(set ^ 1U, thread);
  if (thread == 0) {
    const auto tasks = static_cast<std::uint32_t>(hidden_tasks(shrink));
    while (get_word(adapters.met) < tasks) {
    }
  }
  asm volatile("bar.sync 2, %0;" ::"n"(kThreads) : "memory");
  std::int64_t column = expand.first_column;
#pragma unroll 1
  for (int slice = 0; slice < shrink.slices; ++slice) {
    const std::int64_t begin = column;
    column += expand.width[slice];
    if (begin >= end_column || column <= first_column) {
      continue;  // no column of this block
    }
#pragma unroll 1
    for (int first = 0; first < of_slice; first += kRounds * kRound) {
      const unsigned used = first == 0 ? used_at_first : used_of(first);
      const std::uint32_t* const from = words.of(set, slice) + first * kSplits;
      HiddenPart part[kRounds];
#pragma unroll
      for (int i = 0; i < kRounds; ++i) {
        part[i].look(from, i * kRound + thread / kLanes, (used >> i & 1U) != 0);
      }
      // Of what was not there yet nothing else is asked for again: all blocks ask for the same
      // lines, and hold up what is written to them.
#pragma unroll
      for (int i = 0; i < kRounds; ++i) {
        while (!part[i].all_there()) {
          part[i].look(from, i * kRound + thread / kLanes, true);
        }
      }
      __syncwarp();
#pragma unroll
      for (int i = 0; i < kRounds; ++i) {
        const int at = first + i * kRound + thread / kLanes;
        const float sum = part[i].sum();
        if (at < of_slice && thread % kLanes == 0) {
          hidden[slice * of_slice + at] *= sum;
        }
      }
    }
  }
  arrive(hidden_full);
  asm volatile("bar.sync 2, %0;" ::"n"(kThreads) : "memory");
  if (thread == 0) {
    __threadfence();
    if (atomicAdd(adapters.met + 1, 1U) == gridDim.x - 1) {
      adapters.met[0] = 0;
      adapters.met[1] = 0;
      adapters.met[2] = set ^ 1U;
    }
  }
}

}  // namespace lora_bench::kernels
