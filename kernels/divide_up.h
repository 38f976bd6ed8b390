#pragma once

#include <cstdint>

namespace lora_bench::kernels {

// No sum that could overflow: a value may be the largest there is.
[[nodiscard]] constexpr std::int64_t divide_up(std::int64_t value, std::int64_t by) {
  return value / by + (value % by == 0 ? 0 : 1);
}

}  // namespace lora_bench::kernels
