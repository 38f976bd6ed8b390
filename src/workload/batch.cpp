#include "workload/batch.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/error.h"
#include "workload/permutation.h"
#include "workload/skew.h"
#include "workload/streams.h"

namespace lora_bench {
namespace {

// Sequences [first, first + count) of the arrival order, ruled by one law that counts from 0.
struct Population {
  std::size_t first = 0;
  std::size_t count = 0;
  const SkewLaw* law = nullptr;
  Draw draw = Draw::kDecodeAdapter;
};

bool same_law(const SkewLaw& left, const SkewLaw& right) {
  return left.kind == right.kind && left.parameter == right.parameter && left.trace == right.trace;
}

std::vector<Sequence> arrivals(const Case& spec) {
  std::vector<Sequence> sequences(static_cast<std::size_t>(spec.batch.decode),
                                  Sequence{.tokens = 1});
  const bool sampled =
      spec.op == Op::kLogits || (spec.op == Op::kLayer && spec.setup.kind == LayerKind::kLogits);
  for (const std::int64_t length : spec.batch.prefill) {
    const std::int64_t rows = sampled ? std::min<std::int64_t>(length, 1) : length;
    sequences.push_back(Sequence{.tokens = rows});
  }
  return sequences;
}

std::vector<Population> populations(const Case& spec) {
  const auto decode = static_cast<std::size_t>(spec.batch.decode);
  const std::size_t prefill = spec.batch.prefill.size();
  if (same_law(spec.skew, spec.prefill_skew)) {
    return {{0, decode + prefill, &spec.skew, Draw::kDecodeAdapter}};
  }
  return {{0, decode, &spec.skew, Draw::kDecodeAdapter},
          {decode, prefill, &spec.prefill_skew, Draw::kPrefillAdapter}};
}

// The slots that laws may draw from, ascending, so that "adapter 0" is the lowest of them.
std::vector<std::int32_t> chosen_slots(const Case& spec) {
  const std::int64_t wanted =
      spec.adapters.active == 0 ? spec.adapters.slots : spec.adapters.active;
  if (wanted > spec.adapters.slots) {
    throw CaseError("active: " + std::to_string(wanted) + " of " +
                    std::to_string(spec.adapters.slots) + " slots");
  }
  std::vector<std::int64_t> order =
      random_order(spec.adapters.slots, spec.seed, stream_of(Draw::kActiveSlots));
  order.resize(static_cast<std::size_t>(wanted));
  std::sort(order.begin(), order.end());
  return {order.begin(), order.end()};
}

void drop_adapters(std::vector<Sequence>& sequences, double share, std::uint64_t seed) {
  const auto count = static_cast<std::int64_t>(sequences.size());
  const auto without = static_cast<std::size_t>(
      std::clamp<std::int64_t>(std::llround(share * static_cast<double>(count)), 0, count));
  const std::vector<std::int64_t> order =
      random_order(count, seed, stream_of(Draw::kWithoutAdapter));
  for (std::size_t i = 0; i < without; ++i) {
    sequences[static_cast<std::size_t>(order[i])].adapter = kNoAdapter;
  }
}

// A chosen slot that the law missed takes a sequence from the slot that has the most: the law
// holds but for the least change that makes the count exact.
void touch_all(std::vector<Sequence>& sequences, const std::vector<std::int32_t>& chosen,
               std::int64_t slots) {
  std::vector<std::vector<std::size_t>> of_slot(static_cast<std::size_t>(slots));
  std::size_t usable = 0;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    if (sequences[i].adapter != kNoAdapter && sequences[i].tokens > 0) {
      of_slot[static_cast<std::size_t>(sequences[i].adapter)].push_back(i);
      ++usable;
    }
  }
  if (usable < chosen.size()) {
    throw CaseError("active: " + std::to_string(chosen.size()) + " adapters cannot be touched by " +
                    std::to_string(usable) + " sequences that have one");
  }
  for (const std::int32_t slot : chosen) {
    if (!of_slot[static_cast<std::size_t>(slot)].empty()) {
      continue;
    }
    const auto richest =
        std::max_element(of_slot.begin(), of_slot.end(),
                         [](const auto& a, const auto& b) { return a.size() < b.size(); });
    const std::size_t moved = richest->back();
    richest->pop_back();
    of_slot[static_cast<std::size_t>(slot)].push_back(moved);
    sequences[moved].adapter = slot;
  }
}

void bind_adapters(std::vector<Sequence>& sequences, const Case& spec) {
  if (spec.adapters.slots == 0) {
    return;
  }
  const std::vector<std::int32_t> chosen = chosen_slots(spec);
  for (const Population& population : populations(spec)) {
    const std::vector<std::int32_t> drawn =
        draw_law(*population.law, static_cast<std::int64_t>(population.count),
                 static_cast<std::int64_t>(chosen.size()), spec.seed, stream_of(population.draw));
    for (std::size_t i = 0; i < population.count; ++i) {
      sequences[population.first + i].adapter =
          drawn[i] == kNoAdapter ? kNoAdapter : chosen[static_cast<std::size_t>(drawn[i])];
    }
  }
  drop_adapters(sequences, spec.no_adapter, spec.seed);
  if (spec.adapters.active != 0) {
    touch_all(sequences, chosen, spec.adapters.slots);
  }
}

std::vector<Sequence> put_in_order(std::vector<Sequence> sequences, const Case& spec) {
  if (spec.order == Order::kShuffled) {
    std::vector<Sequence> shuffled;
    shuffled.reserve(sequences.size());
    for (const std::int64_t i : random_order(static_cast<std::int64_t>(sequences.size()), spec.seed,
                                             stream_of(Draw::kOrder))) {
      shuffled.push_back(sequences[static_cast<std::size_t>(i)]);
    }
    return shuffled;
  }
  if (spec.order == Order::kSorted) {
    // As unsigned numbers -1 comes last, where a plan puts it too.
    std::stable_sort(sequences.begin(), sequences.end(), [](const Sequence& a, const Sequence& b) {
      return static_cast<std::uint32_t>(a.adapter) < static_cast<std::uint32_t>(b.adapter);
    });
  }
  return sequences;
}

}  // namespace

Batch draw_batch(const Case& spec) {
  std::vector<Sequence> sequences = arrivals(spec);
  bind_adapters(sequences, spec);
  Batch batch;
  batch.sequences = put_in_order(std::move(sequences), spec);
  for (Sequence& sequence : batch.sequences) {
    sequence.first_token = static_cast<std::int64_t>(batch.adapter_of_token.size());
    batch.adapter_of_token.insert(batch.adapter_of_token.end(),
                                  static_cast<std::size_t>(sequence.tokens), sequence.adapter);
  }
  const auto captured = static_cast<std::size_t>(spec.plan.max_tokens);
  if (batch.adapter_of_token.size() < captured) {
    batch.adapter_of_token.resize(captured, kNoAdapter);
  }
  return batch;
}

}  // namespace lora_bench
