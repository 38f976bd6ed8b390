#pragma once

#include <memory>
#include <string_view>

#include "ops/backend.h"

namespace lora_bench {

inline constexpr std::string_view kNaiveSummary =
    "CUDA, one readable kernel an op, for a second opinion; every op in bf16, fp16 and fp32";

// kernels/naive. Throws EnvironmentError in a build without CUDA.
[[nodiscard]] std::unique_ptr<Backend> make_naive_backend();

}  // namespace lora_bench
