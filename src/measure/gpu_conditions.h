#pragma once

#include <string>

#include "measure/clock.h"

namespace lora_bench {

// What both clocks of GPUs tell beside times. `identity` as in DeviceFacts.
[[nodiscard]] Conditions gpu_conditions(const std::string& identity);
// Events tell times apart that differ by this much.
constexpr double kGpuResolutionSeconds = 0.5e-6;

}  // namespace lora_bench
