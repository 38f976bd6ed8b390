#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "plan/plan.h"

namespace lora_bench {

// The metadata of vLLM's LoRA kernels; the published names beside ours. Unlike in Plan, rows
// without an adapter are a group of their own, id -1, and it is the first one. docs/plan.md.
struct KernelForm {
  std::vector<std::int32_t> adapter_of_token;  // token_lora_mapping [tokens]
  std::vector<std::int32_t> token_order;       // token_indices_sorted_by_lora_ids [tokens]
  std::vector<std::int32_t> active_ids;        // active_lora_ids [slots + 1], -1 padded
  std::vector<std::int32_t> counts;            // num_tokens_per_lora [slots + 1], 0 padded
  std::vector<std::int32_t> starts;            // lora_token_start_loc [slots + 2], 0 padded
  std::int32_t active = 0;                     // num_active_loras: groups, that of -1 included
  bool no_adapter = false;                     // no_lora_flag: nothing to launch
};

[[nodiscard]] KernelForm make_kernel_form(const Plan& plan, std::int64_t slots);

// The number of groups that a graph is replayed for: the least captured number that is enough, or
// `active` itself when none is. `captured` ascends.
[[nodiscard]] std::int32_t captured_active(std::int32_t active,
                                           std::span<const std::int32_t> captured);

// The batch as vLLM's prefill kernels took it: runs of rows with the same adapter, in the order of
// the batch. Neighbouring sequences of one adapter are one run. docs/plan.md.
struct PrefillForm {
  std::vector<std::int32_t> starts;    // seq_start_locs [batch_size]
  std::vector<std::int32_t> lengths;   // seq_lengths [batch_size]
  std::vector<std::int32_t> adapters;  // lora_indices_per_batch [batch_size], -1 = none
  std::int64_t longest = 0;            // max_length: of a run
  std::int64_t tokens = 0;             // token_nums
  bool no_adapter = false;             // no_lora: every row is -1

  [[nodiscard]] std::int64_t batch_size() const {  // after merging
    return static_cast<std::int64_t>(starts.size());
  }
};

// Knows no slots: throws std::invalid_argument for an id below -1 alone.
[[nodiscard]] PrefillForm make_prefill_form(std::span<const std::int32_t> adapter_of_token);

// One row for every token of every sequence; sequences of no tokens leave none. Throws
// std::invalid_argument for a negative length or unequal numbers of lengths and adapters.
[[nodiscard]] std::vector<std::int32_t> rows_of_sequences(std::span<const std::int64_t> lengths,
                                                          std::span<const std::int32_t> adapters);

// Indices into tables that hold all slots one after the other, as vLLM's Punica wrapper gives them
// to logits and embedding layers. docs/plan.md. No slot, and ids
// outside -1 .. slots - 1, throw std::invalid_argument.

// Of the rows whose logits are taken: one for each sequence that samples.
struct SamplerIndices {
  std::vector<std::int32_t> adapters;  // sampler_indices [rows], -1 = none
  // sampler_indices_padded [rows]: row + slot * rows. A row without an adapter points at the last
  // slot, which the table must therefore have.
  std::vector<std::int64_t> padded;
};
[[nodiscard]] SamplerIndices make_sampler_indices(std::span<const std::int32_t> adapter_of_row,
                                                  std::int64_t slots);

// Rows of embeddings_indices, [tokens] each: what to add to a token's number. A token without an
// adapter points at slot 0.
struct EmbeddingIndices {
  std::vector<std::int64_t> extra;  // slot * extra_vocabulary: tokens that adapters added
  std::vector<std::int64_t> table;  // slot * (vocabulary + extra_vocabulary): rows of A
};
[[nodiscard]] EmbeddingIndices make_embedding_indices(
    std::span<const std::int32_t> adapter_of_token, std::int64_t slots, std::int64_t vocabulary,
    std::int64_t extra_vocabulary);

// The batch as SGLang's chunked kernels take it: the rows of each adapter cut into segments of at
// most `chunk` rows, one tile each; the published names beside ours. Rows without an adapter are
// last in the permutation, and in no segment, or in those of one more slot of rank 0. docs/plan.md.
struct ChunkedForm {
  std::vector<std::int32_t> permutation;         // permutation [tokens]
  std::vector<std::int32_t> segment_starts;      // seg_indptr [segments + 1]
  std::vector<std::int32_t> adapter_of_segment;  // weight_indices [segments]
  std::vector<std::int32_t> rank;                // lora_ranks [slots], one more for idle segments
  std::vector<float> scale;                      // scalings, as many
  std::int64_t chunk = 0;                        // max_len: most rows of a segment

  [[nodiscard]] std::int64_t segments() const {  // num_segments
    return static_cast<std::int64_t>(adapter_of_segment.size());
  }
};

// `chunk` is 16, 32, 64 or 128, and rank and scale hold as many slots: std::invalid_argument else.
// `idle_segments`: rows without an adapter have segments too, of slot `slots`.
[[nodiscard]] ChunkedForm make_chunked_form(const Plan& plan, std::span<const std::int64_t> rank,
                                            std::span<const float> scale, std::int64_t chunk,
                                            bool idle_segments = false);

// The rule by which SGLang's chunked backend takes the chunk for a batch, never more than
// `largest` (its --max-lora-chunk-size: 16 unless asked otherwise).
[[nodiscard]] std::int64_t chunk_of_batch(std::int64_t tokens, std::int64_t largest);

// An entry of which a form says that nobody writes it.
constexpr std::int64_t kLeftAlone = std::numeric_limits<std::int64_t>::min();

// The batch as vLLM's kernels of experts take it. A pair is a token with one of the experts that it
// chose, number token * top_k + choice. Each slot that a row has lists its pairs by expert,
// ascending, the pairs of an expert padded with the number of all pairs to whole blocks. Pairs of
// rows without an adapter, and those whose expert is -1, are nowhere; the lists of other slots are
// left alone. docs/plan.md.
struct AlignForm {
  std::vector<std::int64_t> pair_order;       // sorted_token_ids [slots, most_listed]
  std::vector<std::int64_t> expert_of_block;  // expert_ids [slots, most_listed / block], -1 unused
  std::vector<std::int64_t> padded_pairs;     // num_tokens_post_padded [slots]
  std::vector<std::int32_t> active_ids;       // lora_ids [slots + 1], -1 first, and behind the last
  std::vector<std::int32_t> enabled;          // adapter_enabled [slots + 1]: 1 of slots with lists
};

// What a token chooses from.
struct ExpertsOfStep {
  std::int64_t count = 0, top_k = 1, block = 16;
};
// `expert_of_choice` holds top_k experts of each token. Slots, experts and blocks out of range
// throw std::invalid_argument.
[[nodiscard]] AlignForm make_align_form(std::span<const std::int32_t> adapter_of_token,
                                        std::int64_t slots,
                                        std::span<const std::int32_t> expert_of_choice,
                                        const ExpertsOfStep& experts);
// Entries that no slot's list exceeds, in whole blocks.
[[nodiscard]] std::int64_t most_listed(std::int64_t pairs, std::int64_t experts,
                                       std::int64_t block);

// Segments that no batch of so many tokens and slots exceeds: the grid of a captured graph.
[[nodiscard]] std::int64_t most_segments(std::int64_t tokens, std::int64_t slots,
                                         std::int64_t chunk);

}  // namespace lora_bench
