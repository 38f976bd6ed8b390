#include <bit>

#include "kernels/metadata/engine.cuh"
#include "kernels/metadata/metadata.h"
#include "kernels/plan/grouping.cuh"

namespace lora_bench::kernels {
namespace {

using grouping::Place;

constexpr int kBitsOfWord = static_cast<int>(kAlignBitsOfWord);

// Each block of the cluster notes the ids of its rows in shared memory; the first one then reads
// what all have noted and lists them.
__device__ void note_ids(const AlignFormParams& params, unsigned* noted) {
  const auto step = static_cast<std::int32_t>(gridDim.x * blockDim.x);
  for (auto row = static_cast<std::int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
       row < params.engine.rows; row += step) {
    const int id = slot_of(params.engine, row) + 1;
    const unsigned bit = grouping::bit_if(true, id % kBitsOfWord);
    volatile unsigned* const word = noted + id / kBitsOfWord;
    if ((*word & bit) == 0) {  // of neighbours alike one writes
      atomicOr(noted + id / kBitsOfWord, bit);
    }
  }
}

// A thread owns neighbouring words.
__device__ void list_ids(const AlignFormParams& params, unsigned* noted, int words) {
  const int each = (words + static_cast<int>(blockDim.x) - 1) / static_cast<int>(blockDim.x);
  const int first = min(static_cast<int>(threadIdx.x) * each, words);
  const int last = min(first + each, words);
  int count = 0;
  for (int word = first; word < last; ++word) {
    unsigned all = noted[word];
    for (unsigned block = 1; block < gridDim.x; ++block) {
      all |= *grouping::of_block(noted + word, block);
    }
    noted[word] = all;
    count += __popc(all);
  }
  unsigned long long listed = 0;
  auto entry =
      static_cast<int>(grouping::sum_before(static_cast<unsigned long long>(count), listed));
  for (int word = first; word < last; ++word) {
    for (unsigned bits = noted[word]; bits != 0; bits &= bits - 1) {
      params.active_ids[entry++] = word * kBitsOfWord + __ffs(static_cast<int>(bits)) - 2;
    }
  }
  __syncthreads();  // `noted` is whole
  for (auto slot = static_cast<int>(threadIdx.x); slot <= params.engine.slots;
       slot += static_cast<int>(blockDim.x)) {
    const int id = slot + 1;
    const bool named =
        slot < params.engine.slots && (noted[id / kBitsOfWord] >> (id % kBitsOfWord) & 1) != 0;
    params.enabled[slot] = named ? 1 : 0;
    if (slot >= static_cast<int>(listed)) {
      params.active_ids[slot] = -1;
    }
  }
}

__global__ void __launch_bounds__(grouping::kMostThreads)
    list_slots(const __grid_constant__ AlignFormParams params, int, int words) {
  extern __shared__ unsigned noted[];
  for (auto word = static_cast<int>(threadIdx.x); word < words;
       word += static_cast<int>(blockDim.x)) {
    noted[word] = 0;
  }
  __syncthreads();
  await_previous_kernel();
  note_ids(params, noted);
  grouping::sync_blocks();
  if (blockIdx.x == 0) {
    list_ids(params, noted, words);
  }
  grouping::sync_blocks();  // no block leaves while the first reads its memory
}

// The pairs of one slot, grouped by expert; the last group is those whose expert is elsewhere. A
// unit is a block: the pair that begins one writes its expert.
struct AlignForm {
  const AlignFormParams& params;
  std::int32_t slot;
  int block_bits;  // 2 to the power of it is the block

  static constexpr bool kUnits = true;
  __device__ int groups() const { return params.experts + 1; }
  __device__ std::int64_t rows() const { return std::int64_t{params.engine.rows} * params.top_k; }
  __device__ int group_of(std::int64_t pair) const {
    const auto row = static_cast<unsigned>(pair) / static_cast<unsigned>(params.top_k);
    if (slot_of(params.engine, row) != slot) {
      return groups();
    }
    const std::int32_t expert = params.expert_of_choice[pair];
    return expert >= 0 && expert < params.experts ? expert : params.experts;
  }
  __device__ void begin() const {}
  __device__ std::int32_t units(int group, std::int32_t pairs) const {
    return group < params.experts ? (pairs + params.block - 1) >> block_bits : 0;
  }
  __device__ void list(const Place&, int, std::int32_t, std::int32_t, std::int32_t) const {}
  __device__ std::int32_t* order() const {
    return params.pair_order + std::int64_t{slot} * params.most_pairs;
  }
  __device__ std::int32_t* experts() const {
    return params.expert_of_block + std::int64_t{slot} * (params.most_pairs >> block_bits);
  }
  __device__ void put(const Place& place, std::int64_t pair, int group, std::int32_t to) const {
    if (group == params.experts) {
      return;
    }
    const std::int32_t in_group = to - place.begin[group];
    const std::int32_t in_block = in_group & (params.block - 1);
    const std::int32_t block = place.unit[group] + (in_group >> block_bits);
    order()[(block << block_bits) + in_block] = static_cast<std::int32_t>(pair);
    if (in_block == 0) {
      experts()[block] = group;
    }
  }
  // The blocks share the padding behind the pairs of each expert, and what is behind all.
  __device__ void finish(const Place& place, std::int32_t blocks) const {
    const auto thread = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    const auto threads = static_cast<int>(gridDim.x * blockDim.x);
    const auto padding = static_cast<std::int32_t>(rows());
    for (int at = thread; at < params.experts << block_bits; at += threads) {
      const int expert = at >> block_bits;
      const std::int32_t pairs = place.all[expert];
      const std::int32_t in_block = at & (params.block - 1);
      const std::int32_t in_last = pairs & (params.block - 1);
      if (in_last != 0 && in_block >= in_last) {
        order()[((place.unit[expert] + (pairs >> block_bits)) << block_bits) + in_block] = padding;
      }
    }
    for (std::int32_t at = (blocks << block_bits) + thread; at < params.most_pairs; at += threads) {
      order()[at] = padding;
    }
    for (std::int32_t at = blocks + thread; at < params.most_pairs >> block_bits; at += threads) {
      experts()[at] = -1;
    }
    if (thread == 0) {
      params.padded_pairs[slot] = blocks << block_bits;
    }
  }
};

// A cluster for each id that rows may have; those without a slot leave.
__global__ void __launch_bounds__(grouping::kMostThreads)
    list_pairs(const __grid_constant__ AlignFormParams params, int rounds, int bits,
               int block_bits) {
  await_previous_kernel();
  const std::int32_t slot = params.active_ids[blockIdx.y];
  if (slot >= 0) {
    grouping::group_rows_by(AlignForm{params, slot, block_bits}, rounds, bits);
  }
}

}  // namespace

cudaError_t launch_align_form(const AlignFormParams& params, const AlignTuning& tuning,
                              cudaStream_t stream) {
  if (tuning.pairs.blocks == 0 || params.block <= 0 ||
      !std::has_single_bit(static_cast<unsigned>(params.block))) {
    return cudaErrorInvalidValue;
  }
  const cudaError_t listed =
      grouping::launch_cluster(list_slots, params, tuning.slots, params.engine.rows, stream,
                               static_cast<int>(align_words(params.engine.slots)));
  if (listed != cudaSuccess || params.engine.rows == 0) {
    return listed;
  }
  const std::int64_t pairs = std::int64_t{params.engine.rows} * params.top_k;
  return grouping::launch_cluster(list_pairs, params, tuning.pairs, pairs, stream,
                                  plan_bits(params.experts),
                                  std::countr_zero(static_cast<unsigned>(params.block)));
}

}  // namespace lora_bench::kernels
