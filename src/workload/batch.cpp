#include "workload/batch.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/random.h"
#include "workload/fill_sizes.h"
#include "workload/routing.h"

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
  const bool sampled = spec.op == Op::kLogits || spec.setup.kind == LayerKind::kLogits;
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
  if (spec.experts.any()) {
    draw_routing(spec, batch);
  }
  return batch;
}

namespace {

// cumulative[i] = p(0) + ... + p(i), unnormalised.
std::vector<double> zipf_cumulative(std::int64_t slots, double exponent) {
  std::vector<double> cumulative;
  cumulative.reserve(static_cast<std::size_t>(slots));
  double sum = 0;
  for (std::int64_t i = 0; i < slots; ++i) {
    sum += std::pow(static_cast<double>(i + 1), -exponent);
    cumulative.push_back(sum);
  }
  return cumulative;
}

std::int64_t draw_zipf(const std::vector<double>& cumulative, double unit) {
  const auto found =
      std::upper_bound(cumulative.begin(), cumulative.end(), unit * cumulative.back());
  const auto last = static_cast<std::int64_t>(cumulative.size()) - 1;
  return std::min<std::int64_t>(found - cumulative.begin(), last);
}

std::int64_t trace_entry(const SkewLaw& law, std::int64_t i, std::int64_t slots) {
  if (law.trace.empty()) {
    throw CaseError("trace '" + law.trace_file + "' holds no adapter ids");
  }
  const std::int32_t id = law.trace[static_cast<std::size_t>(i) % law.trace.size()];
  if (id < -1 || id >= slots) {
    throw CaseError("trace '" + law.trace_file + "' names adapter " + std::to_string(id) +
                    "; here ids go from -1 to " + std::to_string(slots - 1));
  }
  return id;
}

}  // namespace

std::vector<std::int32_t> draw_law(const SkewLaw& law, std::int64_t count, std::int64_t slots,
                                   std::uint64_t seed, std::uint64_t stream) {
  const auto uniform = [&](std::int64_t i, std::int64_t bound) {
    return static_cast<std::int64_t>(random_below(seed, stream, static_cast<std::uint64_t>(i),
                                                  static_cast<std::uint64_t>(bound)));
  };
  const std::vector<double> cumulative =
      law.kind == Skew::kZipf ? zipf_cumulative(slots, law.parameter) : std::vector<double>{};
  const auto draw = [&](std::int64_t i) -> std::int64_t {
    const auto index = static_cast<std::uint64_t>(i);
    switch (law.kind) {
      case Skew::kIdentical:
        return 0;
      case Skew::kDistinct:
        return i % slots;
      case Skew::kUniform:
        return uniform(i, slots);
      case Skew::kZipf:
        return draw_zipf(cumulative, random_unit(seed, stream, index));
      case Skew::kHot: {
        const bool hot = slots == 1 || random_unit(seed, stream, 2 * index) < law.parameter;
        return hot ? 0 : 1 + uniform(2 * i + 1, slots - 1);
      }
      case Skew::kOneVsRest:
        return i == 0 ? 0 : std::min<std::int64_t>(1, slots - 1);
      case Skew::kBlocks:
        return i * slots / count;
      case Skew::kTrace:
        return trace_entry(law, i, slots);
    }
    return 0;
  };
  std::vector<std::int32_t> adapters;
  adapters.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    adapters.push_back(static_cast<std::int32_t>(draw(i)));
  }
  return adapters;
}

std::vector<std::int64_t> random_order(std::int64_t count, std::uint64_t seed,
                                       std::uint64_t stream) {
  const RandomStream random(seed, stream);
  std::vector<std::pair<std::uint64_t, std::int64_t>> keyed;
  keyed.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    keyed.emplace_back(random.bits(static_cast<std::uint64_t>(i)), i);
  }
  std::sort(keyed.begin(), keyed.end());
  std::vector<std::int64_t> order;
  order.reserve(keyed.size());
  for (const auto& [key, i] : keyed) {
    order.push_back(i);
  }
  return order;
}

}  // namespace lora_bench
