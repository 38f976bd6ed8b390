#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lora_bench {

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

}  // namespace lora_bench
