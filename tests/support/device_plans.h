#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <vector>

#include "core/random.h"
#include "device/memory.h"
#include "ops/device_plan.h"
#include "plan/plan.h"

// Plans that a kernel builds, held against those of the host.
namespace lora_bench {

using Ids = std::vector<std::int32_t>;

constexpr std::int64_t kMostTokens = 16384;
constexpr std::int64_t kMostSlots = 512;

// All that is written, array after array without gaps: an overrun of one shows in the next.
inline std::int64_t words_written(std::int64_t tokens, std::int64_t slots) {
  return tokens + (slots + 1) + (slots + 2) + (slots + 1) + 1;
}

inline Ids expected_words(const Ids& ids, std::int64_t slots) {
  const Plan plan = make_plan(ids, slots);
  const auto groups = static_cast<std::size_t>(slots) + 1;
  const auto active = plan.active_ids.size();
  Ids padded = plan.active_ids;
  padded.resize(groups, -1);
  Ids starts = plan.group_starts;
  starts.resize(groups + 1, static_cast<std::int32_t>(plan.rows_with_adapter()));
  Ids counts;
  for (std::size_t group = 0; group < active; ++group) {
    counts.push_back(plan.group_starts[group + 1] - plan.group_starts[group]);
  }
  counts.resize(groups, 0);
  Ids words = plan.token_order;
  words.insert(words.end(), padded.begin(), padded.end());
  words.insert(words.end(), starts.begin(), starts.end());
  words.insert(words.end(), counts.begin(), counts.end());
  words.push_back(static_cast<std::int32_t>(active));
  return words;
}

// Room for the largest batch; what a launch leaves alone keeps the poison.
class PlanBed {
 public:
  explicit PlanBed(Memory& memory)
      : ids_(memory, kMostTokens * kWord),
        out_(memory, words_written(kMostTokens, kMostSlots) * kWord) {}

  void set(const Ids& ids) {
    ids_.upload(ids.data(), static_cast<std::int64_t>(ids.size()) * kWord);
    out_.poison();
  }

  [[nodiscard]] DevicePlan plan(std::int64_t tokens, std::int64_t slots) const {
    DevicePlan plan;
    plan.adapter_of_token = static_cast<const std::int32_t*>(ids_.data());
    plan.token_order = static_cast<std::int32_t*>(out_.data());
    plan.active_ids = plan.token_order + tokens;
    plan.group_starts = plan.active_ids + slots + 1;
    plan.counts = plan.group_starts + slots + 2;
    plan.active = plan.counts + slots + 1;
    return plan;
  }

  // Whether all is as the host has it, the rest still poison, and the ids and bands as they were.
  [[nodiscard]] bool agrees(const Ids& ids, std::int64_t slots) const {
    Ids expected = expected_words(ids, slots);
    const std::vector<std::byte> got = out_.download();
    expected.resize(got.size() / kWord, -1);
    return std::memcmp(got.data(), expected.data(), got.size()) == 0 && ids_.damage().empty() &&
           out_.damage().empty();
  }

 private:
  static constexpr std::int64_t kWord = 4;
  GuardedBuffer ids_;
  GuardedBuffer out_;
};

// Sizes at which tiles, blocks and clusters begin and end, and any between them.
inline std::int64_t drawn_size(std::uint64_t seed, std::uint64_t stream, std::int64_t least,
                               std::int64_t most) {
  const std::int64_t edges[] = {least, least + 1, 31, 32, 33, 2047, 2048, 2049, most - 1, most};
  const auto draw = [&](std::uint64_t index, std::int64_t bound) {
    return static_cast<std::int64_t>(
        random_below(seed, stream, index, static_cast<std::uint64_t>(bound)));
  };
  if (draw(0, 4) == 0) {
    return std::clamp(edges[draw(1, std::size(edges))], least, most);
  }
  // As many small ones as large ones.
  const std::int64_t magnitude = draw(2, std::bit_width(static_cast<std::uint64_t>(most)) + 1);
  return std::min(least + draw(3, std::int64_t{1} << magnitude), most);
}

inline Ids drawn_ids(std::uint64_t seed, std::int64_t tokens, std::int64_t slots) {
  const std::uint64_t law = random_below(seed, 3, 0, 6);
  const std::uint64_t none_of_four = random_below(seed, 3, 1, 5);  // share of -1
  const std::uint64_t run = 1 + random_below(seed, 3, 2, 300);
  const RandomStream stream(seed, 4);
  Ids ids(static_cast<std::size_t>(tokens));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::uint64_t bits = stream.bits(law == 1 ? i / run : i);
    const auto below = [&](std::uint64_t bound) { return (bits >> 32) % bound; };
    const auto all = static_cast<std::uint64_t>(slots);
    std::uint64_t id = below(all);                  // 0: uniform; 1: in runs
    id = law == 2 ? all - 1 : id;                   // the last slot alone
    id = law == 3 ? below(1 + id) : id;             // low ones more often
    id = law == 4 ? i % all : id;                   // each in turn
    id = law == 5 ? all - 1 - below(2) % all : id;  // two of many
    ids[i] = bits % 4 < none_of_four ? -1 : static_cast<std::int32_t>(id);
  }
  return ids;
}

}  // namespace lora_bench
