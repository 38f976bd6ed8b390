#pragma once

#include <cstdint>
#include <vector>

#include "workload/tensors.h"

namespace lora_bench {

// How an element follows from its random bits: uniform in (-1, 1), or one of +-{1 .. integers}
// when `integers` is not 0, and of integers only one in so many is not 0; times `factor`.
struct ElementLaw {
  std::int64_t integers = 0;
  float factor = 1;
  std::int64_t one_in = 1;
};

// Of A and B of eight bits what their numbers times their scales are.
struct FillSizes {
  ElementLaw x, a, h, y, bias;
  std::vector<ElementLaw> b;  // [slots]
  std::vector<float> scale;   // [slots]
  // [slots] What h is times where a shrink adds to it; empty: 1.
  std::vector<float> added_to;
};

// Depends on shapes, ranks, scales, seed and which adapters the batch uses, never on its order:
// permuted batches share adapters.
[[nodiscard]] FillSizes fill_sizes(const Problem& problem, Fill fill, std::uint64_t seed);

// What the delta of a row is multiplied by where its sums are to be exact: a power of two from 1 /
// 8 to 1 / 2, another one than the next row has.
constexpr double kLeastExactFactor = 0.125;
[[nodiscard]] constexpr float exact_factor(std::int64_t row) {
  constexpr float kFactors[]{0.5F, 0.25F, 0.125F};
  return kFactors[(row + row / 3) % 3];
}

// What a random number is drawn for: the `stream` of core/random.h. The numbers are part of every
// golden value and of every published seed, so they are never reused or renumbered. Streams of
// tensors leave room for one per slice.
enum class Draw : std::uint64_t {
  kDecodeAdapter = 1,
  kPrefillAdapter = 2,
  kActiveSlots = 3,
  kWithoutAdapter = 4,
  kOrder = 5,
  kRankDeal = 6,
  kScale = 7,
  kUneven = 8,
  kRequest = 9,
  kX = 100,
  kH = 101,
  kY = 102,
  kA = 1ULL << 32,
  kB = 2ULL << 32,
  kBias = 3ULL << 32,
  kAScale = 4ULL << 32,
  kBScale = 5ULL << 32,
  kXScale = 6ULL << 32,
  kHScale = 7ULL << 32,
  kMissingExperts = 8ULL << 32,  // and the slot
  kExpertOrder = 9ULL << 32,     // and behind it those of adapters with one of their own
  kExpertChoice = 10ULL << 32,
  kRouterLogit = 11ULL << 32,
  kAdapterWithOrder = 12ULL << 32,
};

constexpr std::uint64_t stream_of(Draw draw, std::int64_t slice = 0) {
  return static_cast<std::uint64_t>(draw) + static_cast<std::uint64_t>(slice);
}

}  // namespace lora_bench
