#pragma once

#include <memory>
#include <string_view>

#include "ops/backend.h"

namespace lora_bench {

constexpr std::string_view kGroupedSummary =
    "vLLM's scheme on tensor cores: a grid per active adapter, split-K by atomics";
constexpr std::string_view kGroupedOrderedSummary =
    "grouped, with the parts of K added in a fixed order";

// Throws EnvironmentError with the reason when there is no usable GPU.
[[nodiscard]] std::unique_ptr<Backend> make_grouped_backend();
[[nodiscard]] std::unique_ptr<Backend> make_grouped_ordered_backend();

}  // namespace lora_bench
