#pragma once

#include <cstdint>

namespace lora_bench {

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
  kX = 100,
  kH = 101,
  kY = 102,
  kA = 1ULL << 32,
  kB = 2ULL << 32,
  kBias = 3ULL << 32,
};

constexpr std::uint64_t stream_of(Draw draw, std::int64_t slice = 0) {
  return static_cast<std::uint64_t>(draw) + static_cast<std::uint64_t>(slice);
}

}  // namespace lora_bench
