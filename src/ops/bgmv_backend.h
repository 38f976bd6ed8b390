#pragma once

#include <memory>
#include <string_view>

#include "ops/backend.h"

namespace lora_bench {

inline constexpr std::string_view kBgmvSummary =
    "CUDA, Punica's scheme: a row a block for decode (BGMV), tiles of an adapter's rows for runs "
    "(SGMV); bf16 and fp16";

// Also on machines without a GPU, for tests.
[[nodiscard]] Numerics bgmv_numerics(const Problem& problem);

// kernels/bgmv. Throws EnvironmentError in a build without CUDA.
[[nodiscard]] std::unique_ptr<Backend> make_bgmv_backend();

}  // namespace lora_bench
