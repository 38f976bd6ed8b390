#pragma once

#include <memory>
#include <string_view>

#include "ops/backend.h"

namespace lora_bench {

constexpr std::string_view kChunkedSummary =
    "SGLang's scheme on tensor cores: segments of rows, slices side by side, no split of K";

// Throws EnvironmentError with the reason when there is no usable GPU.
[[nodiscard]] std::unique_ptr<Backend> make_chunked_backend();

}  // namespace lora_bench
