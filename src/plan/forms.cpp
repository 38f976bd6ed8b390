#include "plan/forms.h"

#include <algorithm>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>

#include "plan/plan.h"

namespace lora_bench {

KernelForm make_kernel_form(const Plan& plan, std::int64_t slots) {
  const auto groups = static_cast<std::size_t>(slots) + 1;
  KernelForm form;
  form.adapter_of_token = plan.adapter_of_token;
  form.token_order = plan.token_order;
  form.active_ids.assign(groups, -1);
  form.counts.assign(groups, 0);
  form.starts.assign(groups + 1, 0);
  form.no_adapter = plan.active() == 0;
  if (form.no_adapter) {
    return form;
  }
  std::rotate(form.token_order.begin(), form.token_order.begin() + plan.rows_with_adapter(),
              form.token_order.end());
  std::size_t group = 0;
  const auto add = [&](std::int32_t id, std::int32_t rows) {
    form.active_ids[group] = id;
    form.counts[group] = rows;
    form.starts[group + 1] = form.starts[group] + rows;
    ++group;
  };
  if (plan.rows_with_adapter() < plan.tokens()) {
    add(-1, static_cast<std::int32_t>(plan.tokens() - plan.rows_with_adapter()));
  }
  for (std::size_t i = 0; i < plan.active_ids.size(); ++i) {
    add(plan.active_ids[i], plan.group_starts[i + 1] - plan.group_starts[i]);
  }
  form.active = static_cast<std::int32_t>(group);
  return form;
}

std::int32_t captured_active(std::int32_t active, std::span<const std::int32_t> captured) {
  const auto enough = std::lower_bound(captured.begin(), captured.end(), active);
  return active == 0 || enough == captured.end() ? active : *enough;
}

PrefillForm make_prefill_form(std::span<const std::int32_t> adapter_of_token) {
  check_adapter_ids(adapter_of_token, std::numeric_limits<std::int32_t>::max());
  PrefillForm form;
  form.tokens = static_cast<std::int64_t>(adapter_of_token.size());
  for (std::size_t row = 0; row < adapter_of_token.size(); ++row) {
    if (row == 0 || adapter_of_token[row] != adapter_of_token[row - 1]) {
      form.starts.push_back(static_cast<std::int32_t>(row));
      form.lengths.push_back(0);
      form.adapters.push_back(adapter_of_token[row]);
    }
    ++form.lengths.back();
    form.longest = std::max<std::int64_t>(form.longest, form.lengths.back());
  }
  form.no_adapter = std::all_of(form.adapters.begin(), form.adapters.end(),
                                [](std::int32_t adapter) { return adapter < 0; });
  return form;
}

std::vector<std::int32_t> rows_of_sequences(std::span<const std::int64_t> lengths,
                                            std::span<const std::int32_t> adapters) {
  if (lengths.size() != adapters.size()) {
    throw std::invalid_argument(std::to_string(lengths.size()) + " lengths for " +
                                std::to_string(adapters.size()) + " adapters of sequences");
  }
  std::vector<std::int32_t> rows;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 0) {
      throw std::invalid_argument("sequence " + std::to_string(i) + " has " +
                                  std::to_string(lengths[i]) + " tokens");
    }
    rows.insert(rows.end(), static_cast<std::size_t>(lengths[i]), adapters[i]);
  }
  return rows;
}

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

namespace {

void check_chunk(std::int64_t chunk) {
  if (chunk != 16 && chunk != 32 && chunk != 64 && chunk != 128) {
    throw std::invalid_argument("a chunk is 16, 32, 64 or 128 rows, got " + std::to_string(chunk));
  }
}

}  // namespace

ChunkedForm make_chunked_form(const Plan& plan, std::span<const std::int64_t> rank,
                              std::span<const float> scale, std::int64_t chunk,
                              bool idle_segments) {
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
  const auto add = [&](std::int32_t slot, std::int64_t first, std::int64_t end) {
    for (std::int64_t row = first; row < end; row += chunk) {
      form.adapter_of_segment.push_back(slot);
      form.segment_starts.push_back(static_cast<std::int32_t>(std::min(row + chunk, end)));
    }
  };
  for (std::size_t group = 0; group < plan.active_ids.size(); ++group) {
    add(plan.active_ids[group], plan.group_starts[group], plan.group_starts[group + 1]);
  }
  if (idle_segments) {
    add(static_cast<std::int32_t>(rank.size()), plan.rows_with_adapter(), plan.tokens());
    form.rank.push_back(0);
    form.scale.push_back(0);
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

std::int64_t most_listed(std::int64_t pairs, std::int64_t experts, std::int64_t block) {
  if (block < 1) {
    throw std::invalid_argument("a block of " + std::to_string(block) +
                                " pairs; allowed: 1 or more");
  }
  // Worst with as many experts as can be, each with one pair in a block that is not full.
  return pairs < experts ? pairs * block
                         : (pairs + experts * (block - 1) + block - 1) / block * block;
}

namespace {

// The pairs of each expert, ascending.
using PairsOfExpert = std::vector<std::vector<std::int64_t>>;

void list_pairs(AlignForm& form, std::int64_t slot, const PairsOfExpert& pairs,
                std::int64_t padding, std::int64_t block) {
  const auto room = static_cast<std::int64_t>(form.pair_order.size()) /
                    static_cast<std::int64_t>(form.padded_pairs.size());
  const auto order = form.pair_order.begin() + slot * room;
  const auto experts = form.expert_of_block.begin() + slot * (room / block);
  std::fill_n(order, room, padding);
  std::fill_n(experts, room / block, -1);
  std::int64_t blocks = 0;
  for (std::size_t expert = 0; expert < pairs.size(); ++expert) {
    const auto count = static_cast<std::int64_t>(pairs[expert].size());
    const std::int64_t taken = (count + block - 1) / block;
    std::copy(pairs[expert].begin(), pairs[expert].end(), order + blocks * block);
    std::fill_n(experts + blocks, taken, static_cast<std::int64_t>(expert));
    blocks += taken;
  }
  form.padded_pairs[static_cast<std::size_t>(slot)] = blocks * block;
}

void check_choices(std::span<const std::int32_t> expert_of_choice, std::size_t tokens,
                   const ExpertsOfStep& experts) {
  if (expert_of_choice.size() != tokens * static_cast<std::size_t>(experts.top_k)) {
    throw std::invalid_argument(std::to_string(expert_of_choice.size()) + " choices for " +
                                std::to_string(tokens) + " tokens of " +
                                std::to_string(experts.top_k) + " experts");
  }
  for (const std::int32_t expert : expert_of_choice) {
    if (expert < -1 || expert >= experts.count) {
      throw std::invalid_argument("expert " + std::to_string(expert) + " of " +
                                  std::to_string(experts.count));
    }
  }
}

}  // namespace

AlignForm make_align_form(std::span<const std::int32_t> adapter_of_token, std::int64_t slots,
                          std::span<const std::int32_t> expert_of_choice,
                          const ExpertsOfStep& experts) {
  check_slots(slots);
  check_adapter_ids(adapter_of_token, slots);
  check_choices(expert_of_choice, adapter_of_token.size(), experts);
  const auto pairs = static_cast<std::int64_t>(expert_of_choice.size());
  const std::int64_t room = most_listed(pairs, experts.count, experts.block);
  const auto table = static_cast<std::size_t>(slots);
  AlignForm form;
  form.pair_order.assign(table * static_cast<std::size_t>(room), kLeftAlone);
  form.expert_of_block.assign(table * static_cast<std::size_t>(room / experts.block), kLeftAlone);
  form.padded_pairs.assign(table, kLeftAlone);
  form.active_ids.assign(table + 1, -1);
  form.enabled.assign(table + 1, 0);
  std::map<std::int32_t, PairsOfExpert> listed;  // by slot, ascending
  for (std::int64_t pair = 0; pair < pairs; ++pair) {
    PairsOfExpert& of_slot =
        listed[adapter_of_token[static_cast<std::size_t>(pair / experts.top_k)]];
    of_slot.resize(static_cast<std::size_t>(experts.count));
    if (const std::int32_t expert = expert_of_choice[static_cast<std::size_t>(pair)]; expert >= 0) {
      of_slot[static_cast<std::size_t>(expert)].push_back(pair);
    }
  }
  std::size_t group = 0;
  for (const auto& [slot, of_slot] : listed) {
    form.active_ids[group++] = slot;
    if (slot >= 0) {
      form.enabled[static_cast<std::size_t>(slot)] = 1;
      list_pairs(form, slot, of_slot, pairs, experts.block);
    }
  }
  return form;
}

}  // namespace lora_bench
