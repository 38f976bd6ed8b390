#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "core/random.h"
#include "scenario/case.h"

// What random cases of ops and of whole layers share.
namespace lora_bench {

constexpr std::uint64_t kCaseStream = 0x63617365ULL;

// Sizes of cases of which none is far.
constexpr std::int64_t kMostRank = 512;
constexpr std::int64_t kMostSlots = 80;
constexpr std::int64_t kMostTokens = 300;

class Dice {
 public:
  Dice(std::uint64_t seed, std::uint64_t index, std::uint64_t stream = kCaseStream)
      : seed_(seed), stream_(stream + index) {}

  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(
        random_below(seed_, stream_, next_++, static_cast<std::uint64_t>(bound)));
  }
  template <typename Value, std::size_t kCount>
  Value one_of(const std::array<Value, kCount>& values) {
    return values[static_cast<std::size_t>(below(static_cast<std::int64_t>(kCount)))];
  }
  bool coin() { return below(2) == 1; }
  bool one_in(std::int64_t count) { return below(count) == 0; }

  // From 1 to `most`, every power of two as likely as the next; half of them are one of these or
  // its neighbour, where tiles, vectors and warps end.
  std::int64_t size(std::int64_t most) {
    std::int64_t powers = 1;
    while ((std::int64_t{1} << powers) <= most) {
      ++powers;
    }
    const std::int64_t power = std::int64_t{1} << below(powers);
    const std::int64_t drawn = coin() ? power + below(power) : power + below(3) - 1;
    return std::clamp<std::int64_t>(drawn, 1, most);
  }
  // From `least` to `most`, every power of two there is, the lower ones more often; half of them
  // are one of these or its neighbour.
  std::int64_t far(std::int64_t least, std::int64_t most) {
    const auto power_of = [](std::int64_t size) {
      return static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(size))) - 1;
    };
    const std::int64_t lowest = power_of(least);
    const std::int64_t highest = power_of(most);
    const std::int64_t top = one_in(4) ? highest : lowest + below(highest - lowest + 1);
    const std::int64_t power = std::int64_t{1} << (lowest + below(top - lowest + 1));
    const std::int64_t drawn = coin() ? power + below(power) : power + below(3) - 1;
    return std::clamp(drawn, least, most);
  }

 private:
  std::uint64_t seed_, stream_, next_ = 0;
};

[[nodiscard]] constexpr std::int64_t rounded_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

[[nodiscard]] std::int64_t random_rank(Dice& dice);
[[nodiscard]] AdapterSpec random_adapters(Dice& dice);
[[nodiscard]] BatchSpec random_batch(Dice& dice);
[[nodiscard]] std::int64_t tokens_of(const Case& spec);
// Gives a quarter of the cases weights of eight bits, and of these some an x of eight bits.
void draw_weights(Dice dice, Case& spec);
// Takes away what a case of other weights, or of another op, cannot have of them.
void settle_eight_bits(Case& spec);
// Laws, order, and the share of sequences without an adapter, which is small where sizes are far.
void draw_who_uses_what(Dice& dice, Case& spec, bool far);

}  // namespace lora_bench
