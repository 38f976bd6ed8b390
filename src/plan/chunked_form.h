#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/plan.h"

namespace lora_bench {

// The batch as SGLang's chunked kernels take it: the rows of each adapter cut into segments of at
// most `chunk` rows, one tile each; the published names beside ours. Rows without an adapter are
// last in the permutation and in no segment. docs/plan.md.
struct ChunkedForm {
  std::vector<std::int32_t> permutation;         // permutation [tokens]
  std::vector<std::int32_t> segment_starts;      // seg_indptr [segments + 1]
  std::vector<std::int32_t> adapter_of_segment;  // weight_indices [segments]
  std::vector<std::int32_t> rank;                // lora_ranks [slots]
  std::vector<float> scale;                      // scalings [slots]
  std::int64_t chunk = 0;                        // max_len: most rows of a segment

  [[nodiscard]] std::int64_t segments() const {  // num_segments
    return static_cast<std::int64_t>(adapter_of_segment.size());
  }
};

// `chunk` is 16, 32, 64 or 128, and rank and scale hold as many slots: std::invalid_argument else.
[[nodiscard]] ChunkedForm make_chunked_form(const Plan& plan, std::span<const std::int64_t> rank,
                                            std::span<const float> scale, std::int64_t chunk);

// The rule by which SGLang's chunked backend takes the chunk for a batch, never more than
// `largest` (its --max-lora-chunk-size: 16 unless asked otherwise).
[[nodiscard]] std::int64_t chunk_of_batch(std::int64_t tokens, std::int64_t largest);

// Segments that no batch of so many tokens and slots exceeds: the grid of a captured graph.
[[nodiscard]] std::int64_t most_segments(std::int64_t tokens, std::int64_t slots,
                                         std::int64_t chunk);

}  // namespace lora_bench
