#pragma once

#include "device/facts.h"
#include "ops/auto_choice.h"

namespace lora_bench {

// The GPU in use, whose facts are given. Throws EnvironmentError in a build without CUDA.
[[nodiscard]] AutoDevice auto_device(const DeviceFacts& facts);

}  // namespace lora_bench
