#pragma once

#include <cstdint>
#include <string>

#include "workload/problem.h"

namespace lora_bench {

// Why a library whose descriptor has these bits in `takes` is not given the step; "" where it is.
[[nodiscard]] std::string not_named(const Problem& problem, std::uint64_t takes);

}  // namespace lora_bench
