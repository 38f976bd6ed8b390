#pragma once

#include <memory>

#include "ops/backend.h"

namespace lora_bench {

// A kernel that only touches every operand of a step once, as a backend: what it computes is wrong,
// so it is timed and never proved. No kernel that does the step moves fewer bytes. Throws
// EnvironmentError where there is no GPU.
[[nodiscard]] std::unique_ptr<Backend> make_touch_probe();

}  // namespace lora_bench
