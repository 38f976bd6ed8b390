#pragma once

#include <cstdint>
#include <vector>

namespace lora_bench {

// The numbers 0 .. count - 1 in an order drawn from (seed, stream).
[[nodiscard]] std::vector<std::int64_t> random_order(std::int64_t count, std::uint64_t seed,
                                                     std::uint64_t stream);

}  // namespace lora_bench
