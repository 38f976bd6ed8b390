#include "reference/metadata.h"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

namespace lora_bench::reference {
namespace {

std::int64_t slot_of(const Engine& engine, std::size_t row) {
  const std::int32_t request = engine.request_of_row[row];
  return request < 0 ? -1 : engine.slot_of_request[static_cast<std::size_t>(request)];
}

Entries slots_of_rows(const Engine& engine) {
  Entries slots;
  for (std::size_t row = 0; row < engine.request_of_row.size(); ++row) {
    slots.push_back(slot_of(engine, row));
  }
  return slots;
}

// The rows of each slot, ascending; slot -1 has those without an adapter.
std::map<std::int64_t, Entries> rows_by_slot(const Engine& engine) {
  std::map<std::int64_t, Entries> rows;
  for (std::size_t row = 0; row < engine.request_of_row.size(); ++row) {
    rows[slot_of(engine, row)].push_back(static_cast<std::int64_t>(row));
  }
  return rows;
}

bool nobody_has_an_adapter(const Engine& engine) {
  const Entries slots = slots_of_rows(engine);
  return std::all_of(slots.begin(), slots.end(), [](std::int64_t slot) { return slot < 0; });
}

}  // namespace

std::vector<Entries> kernel_form(const Engine& engine) {
  const auto room = static_cast<std::size_t>(engine.slots) + 1;
  Entries ids(room, -1);
  Entries counts(room, 0);
  Entries starts(room + 1, 0);
  if (nobody_has_an_adapter(engine)) {
    return {{}, {}, ids, counts, starts, {0}, {1}};
  }
  Entries order;
  std::size_t group = 0;
  for (const auto& [slot, rows] : rows_by_slot(engine)) {
    ids[group] = slot;
    counts[group] = static_cast<std::int64_t>(rows.size());
    starts[group] = static_cast<std::int64_t>(order.size());
    order.insert(order.end(), rows.begin(), rows.end());
    ++group;
  }
  starts[group] = static_cast<std::int64_t>(order.size());
  return {
      slots_of_rows(engine), order, ids, counts, starts, {static_cast<std::int64_t>(group)}, {0}};
}

std::vector<Entries> prefill_form(const Engine& engine) {
  const Entries slots = slots_of_rows(engine);
  Entries starts, lengths, adapters;
  std::int64_t longest = 0;
  for (std::size_t row = 0; row < slots.size();) {
    std::size_t end = row;
    while (end < slots.size() && slots[end] == slots[row]) {
      ++end;
    }
    starts.push_back(static_cast<std::int64_t>(row));
    lengths.push_back(static_cast<std::int64_t>(end - row));
    adapters.push_back(slots[row]);
    longest = std::max(longest, lengths.back());
    row = end;
  }
  const auto runs = static_cast<std::int64_t>(starts.size());
  const auto rows = static_cast<std::int64_t>(slots.size());
  return {starts,
          lengths,
          adapters,
          {runs},
          {longest},
          {rows},
          {nobody_has_an_adapter(engine) ? 1 : 0}};
}

std::vector<Entries> sampler_form(const Engine& engine) {
  const Entries adapters = slots_of_rows(engine);
  const auto rows = static_cast<std::int64_t>(adapters.size());
  Entries places;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t slot = adapters[static_cast<std::size_t>(row)];
    places.push_back(row + (slot < 0 ? engine.slots - 1 : slot) * rows);
  }
  return {adapters, places};
}

std::vector<Entries> embedding_form(const Engine& engine) {
  Entries extra, table;
  for (const std::int64_t slot : slots_of_rows(engine)) {
    const std::int64_t held = slot < 0 ? 0 : slot;
    extra.push_back(held * engine.extra_vocabulary);
    table.push_back(held * (engine.vocabulary + engine.extra_vocabulary));
  }
  return {extra, table};
}

std::vector<Entries> chunked_form(const Engine& engine) {
  std::map<std::int64_t, Entries> rows = rows_by_slot(engine);
  const Entries without = std::exchange(rows[-1], {});
  rows.erase(-1);
  Entries order, starts{0}, slots;
  const auto cut = [&](std::int64_t slot, const Entries& its) {
    const auto count = static_cast<std::int64_t>(its.size());
    for (std::int64_t done = 0; done < count; done += engine.chunk) {
      slots.push_back(slot);
      starts.push_back(starts.back() + std::min(engine.chunk, count - done));
    }
  };
  for (const auto& [slot, its] : rows) {
    order.insert(order.end(), its.begin(), its.end());
    cut(slot, its);
  }
  order.insert(order.end(), without.begin(), without.end());
  Entries ranks(engine.rank.begin(), engine.rank.end());
  Entries scales;
  for (const float scale : engine.scale) {
    scales.push_back(std::bit_cast<std::int32_t>(scale));
  }
  if (engine.idle_segments) {
    cut(engine.slots, without);
    ranks.push_back(0);
    scales.push_back(0);
  }
  const auto segments = static_cast<std::int64_t>(slots.size());
  starts.resize(static_cast<std::size_t>(engine.most_segments) + 1, starts.back());
  return {order, starts, slots, ranks, scales, {segments}, {engine.chunk}};
}

namespace {

std::int64_t up_to_whole_blocks(std::int64_t count, std::int64_t block) {
  return count % block == 0 ? count : count + block - count % block;
}

// Places of a list: whatever the pairs chose, they fit, each expert's rounded up to whole blocks.
std::int64_t places_of_list(const Engine& engine) {
  const std::int64_t pairs = std::ssize(engine.expert_of_choice);
  return pairs < engine.experts
             ? pairs * engine.block
             : up_to_whole_blocks(pairs + engine.experts * (engine.block - 1), engine.block);
}

// The blocks of one slot: an expert is asked for by looking at all rows of the slot.
struct Blocks {
  Entries pairs, experts;
};

Blocks blocks_of(const Engine& engine, const Entries& rows) {
  Blocks blocks;
  for (std::int64_t expert = 0; expert < engine.experts; ++expert) {
    for (const std::int64_t row : rows) {
      for (std::int64_t choice = 0; choice < engine.top_k; ++choice) {
        const std::int64_t pair = row * engine.top_k + choice;
        if (engine.expert_of_choice[static_cast<std::size_t>(pair)] == expert) {
          blocks.pairs.push_back(pair);
        }
      }
    }
    const std::int64_t end = up_to_whole_blocks(std::ssize(blocks.pairs), engine.block);
    blocks.pairs.resize(static_cast<std::size_t>(end), std::ssize(engine.expert_of_choice));
    blocks.experts.resize(static_cast<std::size_t>(end / engine.block), expert);
  }
  return blocks;
}

}  // namespace

std::vector<Entries> align_form(const Engine& engine) {
  const std::int64_t places = places_of_list(engine);
  std::map<std::int64_t, Entries> rows = rows_by_slot(engine);
  Entries lists, experts, counts, ids, enabled;
  for (const auto& [slot, its] : rows) {
    ids.push_back(slot);
  }
  ids.resize(static_cast<std::size_t>(engine.slots) + 1, -1);
  const auto append = [](Entries& to, const Entries& what, std::int64_t room, std::int64_t rest) {
    to.insert(to.end(), what.begin(), what.end());
    to.insert(to.end(), static_cast<std::size_t>(room - std::ssize(what)), rest);
  };
  for (std::int64_t slot = 0; slot < engine.slots; ++slot) {
    const bool active = rows.contains(slot);
    const Blocks blocks = active ? blocks_of(engine, rows[slot]) : Blocks{};
    append(lists, blocks.pairs, places, active ? std::ssize(engine.expert_of_choice) : kNotWritten);
    append(experts, blocks.experts, places / engine.block, active ? -1 : kNotWritten);
    counts.push_back(active ? std::ssize(blocks.pairs) : kNotWritten);
    enabled.push_back(active ? 1 : 0);
  }
  enabled.push_back(0);
  return {lists, experts, counts, ids, enabled};
}

}  // namespace lora_bench::reference
