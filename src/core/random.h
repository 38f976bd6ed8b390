#pragma once

#include <cstdint>

namespace lora_bench {

// Counter-based: the value depends on (seed, stream, index) alone, never on a thread, an order or
// a platform. `stream` names what is drawn (see workload/streams.h).
[[nodiscard]] std::uint64_t random_bits(std::uint64_t seed, std::uint64_t stream,
                                        std::uint64_t index);

// Uniform in [0, 1): 53 random bits.
[[nodiscard]] double random_unit(std::uint64_t seed, std::uint64_t stream, std::uint64_t index);

// Uniform in [0, bound); bound >= 1.
[[nodiscard]] std::uint64_t random_below(std::uint64_t seed, std::uint64_t stream,
                                         std::uint64_t index, std::uint64_t bound);

// The same numbers for a loop over many indices of one stream: the key is mixed once.
class RandomStream {
 public:
  RandomStream(std::uint64_t seed, std::uint64_t stream)
      : key_(mix(mix(seed + kGamma) + mix(stream ^ kGamma))) {}

  // A Weyl sequence through Stafford's 13th mixer, as in SplitMix64, which passes BigCrush: ample
  // for test data, and one element costs two multiplications and no state. Not for cryptography.
  [[nodiscard]] std::uint64_t bits(std::uint64_t index) const { return mix(key_ + index * kGamma); }

 private:
  static constexpr std::uint64_t kGamma = 0x9e3779b97f4a7c15U;

  static std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }

  std::uint64_t key_;
};

}  // namespace lora_bench
