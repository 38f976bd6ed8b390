#include "plan/chunked_form.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace lora_bench {
namespace {

void check_chunk(std::int64_t chunk) {
  if (chunk != 16 && chunk != 32 && chunk != 64 && chunk != 128) {
    throw std::invalid_argument("a chunk is 16, 32, 64 or 128 rows, got " + std::to_string(chunk));
  }
}

}  // namespace

ChunkedForm make_chunked_form(const Plan& plan, std::span<const std::int64_t> rank,
                              std::span<const float> scale, std::int64_t chunk) {
  check_chunk(chunk);
  if (rank.size() != scale.size()) {
    throw std::invalid_argument(std::to_string(rank.size()) + " ranks for " +
                                std::to_string(scale.size()) + " scales");
  }
  ChunkedForm form;
  form.chunk = chunk;
  form.permutation = plan.token_order;
  for (const std::int64_t lanes : rank) {
    form.rank.push_back(static_cast<std::int32_t>(lanes));
  }
  form.scale.assign(scale.begin(), scale.end());
  form.segment_starts.push_back(0);
  for (std::size_t group = 0; group < plan.active_ids.size(); ++group) {
    const std::int64_t end = plan.group_starts[group + 1];
    for (std::int64_t row = plan.group_starts[group]; row < end; row += chunk) {
      form.adapter_of_segment.push_back(plan.active_ids[group]);
      form.segment_starts.push_back(static_cast<std::int32_t>(std::min(row + chunk, end)));
    }
  }
  return form;
}

std::int64_t chunk_of_batch(std::int64_t tokens, std::int64_t largest) {
  check_chunk(largest);
  const std::int64_t wanted = tokens >= 256 ? 128 : tokens >= 64 ? 32 : 16;
  return std::min(wanted, largest);
}

std::int64_t most_segments(std::int64_t tokens, std::int64_t slots, std::int64_t chunk) {
  check_chunk(chunk);
  // Worst with as many adapters as can be, each with one row in a segment that is not full.
  const std::int64_t active = std::min(tokens, slots);
  return active + (tokens - active) / chunk;
}

}  // namespace lora_bench
