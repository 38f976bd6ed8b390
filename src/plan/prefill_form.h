#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lora_bench {

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

}  // namespace lora_bench
