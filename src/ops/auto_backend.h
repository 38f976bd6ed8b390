#pragma once

#include <memory>
#include <string_view>

#include "ops/backend.h"

namespace lora_bench {

inline constexpr std::string_view kAutoSummary =
    "CUDA, the kernels that suit the shape and the device, all with one order of sums: one launch "
    "of clusters where it can be; deterministic, batch-invariant; bf16 and fp16";

// Throws EnvironmentError in a build without CUDA.
[[nodiscard]] std::unique_ptr<Backend> make_auto_backend();

}  // namespace lora_bench
