#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace lora_bench::reference {

// What an engine has at the start of a step, and how its tables are laid out.
struct Engine {
  std::span<const std::int32_t> request_of_row;   // -1 = none; of tokens, or of sampled rows
  std::span<const std::int32_t> slot_of_request;  // -1 = no adapter
  std::span<const std::int32_t> rank;             // of each slot
  std::span<const float> scale;
  std::int64_t slots = 0;
  std::int64_t vocabulary = 0, extra_vocabulary = 0;
  std::int64_t chunk = 0;          // most rows of a segment
  std::int64_t most_segments = 0;  // entries that there is room for
  bool idle_segments = false;      // rows without an adapter have segments of slot `slots`, rank 0
  std::span<const std::int32_t> expert_of_choice;  // of each row top_k; -1 = elsewhere
  std::int64_t experts = 0, top_k = 0;
  std::int64_t block = 0;  // pairs of a row and an expert that lists are padded to
};

// The entries that a form promises, array after array in the order of docs/plan.md: all of an
// array, or those before the count that another one holds. A float is its bits. Each row is asked
// by itself, in the words of the page: nothing is shared with what makes plans for kernels.
using Entries = std::vector<std::int64_t>;

// Stands where a form says that an entry is not to be written.
constexpr std::int64_t kNotWritten = std::numeric_limits<std::int64_t>::min();

// Mapping and order (none where no row has an adapter), ids, counts, starts, groups, flag.
[[nodiscard]] std::vector<Entries> kernel_form(const Engine& engine);
// Starts, lengths and adapters of runs, how many, the longest, rows, flag.
[[nodiscard]] std::vector<Entries> prefill_form(const Engine& engine);
// Adapters, places in a table of all slots.
[[nodiscard]] std::vector<Entries> sampler_form(const Engine& engine);
// What is added to a token's number: for its extra vocabulary, for its row of the table.
[[nodiscard]] std::vector<Entries> embedding_form(const Engine& engine);
// Permutation, starts and slots of segments, ranks, scales, how many, the chunk.
[[nodiscard]] std::vector<Entries> chunked_form(const Engine& engine);
// Of each slot its pairs in blocks of one expert, the expert of each block, places taken; active
// slots, and a flag for each slot. The pairs of an expert ascend, and may stand in any order.
[[nodiscard]] std::vector<Entries> align_form(const Engine& engine);

}  // namespace lora_bench::reference
