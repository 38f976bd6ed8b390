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

}  // namespace lora_bench
