#include "plan/table_indices.h"

#include <stdexcept>
#include <string>

#include "plan/plan.h"

namespace lora_bench {
namespace {

void check_slots(std::int64_t slots) {
  if (slots < 1) {
    throw std::invalid_argument("a table of " + std::to_string(slots) +
                                " slots has no rows to point at; allowed: 1 or more");
  }
}

}  // namespace

SamplerIndices make_sampler_indices(std::span<const std::int32_t> adapter_of_row,
                                    std::int64_t slots) {
  check_slots(slots);
  check_adapter_ids(adapter_of_row, slots);
  const auto rows = static_cast<std::int64_t>(adapter_of_row.size());
  SamplerIndices indices;
  indices.adapters.assign(adapter_of_row.begin(), adapter_of_row.end());
  for (const std::int32_t adapter : adapter_of_row) {
    const std::int64_t slot = adapter < 0 ? slots - 1 : adapter;
    const auto row = static_cast<std::int64_t>(indices.padded.size());
    indices.padded.push_back(row + slot * rows);
  }
  return indices;
}

EmbeddingIndices make_embedding_indices(std::span<const std::int32_t> adapter_of_token,
                                        std::int64_t slots, std::int64_t vocabulary,
                                        std::int64_t extra_vocabulary) {
  check_slots(slots);
  check_adapter_ids(adapter_of_token, slots);
  EmbeddingIndices indices;
  for (const std::int32_t adapter : adapter_of_token) {
    const std::int64_t slot = adapter < 0 ? 0 : adapter;
    indices.extra.push_back(slot * extra_vocabulary);
    indices.table.push_back(slot * (vocabulary + extra_vocabulary));
  }
  return indices;
}

}  // namespace lora_bench
