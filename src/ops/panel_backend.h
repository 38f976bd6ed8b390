#pragma once

#include <memory>
#include <string_view>

#include "ops/backend.h"

namespace lora_bench {

inline constexpr std::string_view kPanelSummary =
    "CUDA, panels of many rows of one adapter: x read once, y read and written once, in one linked "
    "pair; deterministic, batch-invariant; bf16 and fp16";

// Of `auto` too, which keeps the same order of sums. Also on machines without a GPU, for tests.
[[nodiscard]] Numerics panel_numerics(const Problem& problem);

// kernels/panel. Throws EnvironmentError in a build without CUDA.
[[nodiscard]] std::unique_ptr<Backend> make_panel_backend();
// As `auto` launches it: with problem.tuning.
[[nodiscard]] std::unique_ptr<Backend> make_tuned_panel_backend();

}  // namespace lora_bench
