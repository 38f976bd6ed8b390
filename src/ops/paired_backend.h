#pragma once

#include <memory>
#include <string_view>

#include "ops/backend.h"

namespace lora_bench {

inline constexpr std::string_view kPairedSummary =
    "CUDA, shrink and expand as a linked pair: both stream from memory, expand brings its weights "
    "while shrink runs; deterministic, batch-invariant; bf16 and fp16";

// Also on machines without a GPU, for tests.
[[nodiscard]] Numerics paired_numerics(const Problem& problem);

// kernels/paired. Throws EnvironmentError in a build without CUDA.
[[nodiscard]] std::unique_ptr<Backend> make_paired_backend();

}  // namespace lora_bench
