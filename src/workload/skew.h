#pragma once

#include <cstdint>
#include <vector>

#include "scenario/case.h"

namespace lora_bench {

// The adapter of each of `count` sequences, in 0 .. slots - 1 (or -1 from a trace); slots >= 1.
[[nodiscard]] std::vector<std::int32_t> draw_law(const SkewLaw& law, std::int64_t count,
                                                 std::int64_t slots, std::uint64_t seed,
                                                 std::uint64_t stream);

}  // namespace lora_bench
