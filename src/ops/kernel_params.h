#pragma once

#include "kernels/params.h"
#include "ops/backend.h"

namespace lora_bench {

// A problem and its addresses as the kernels take them. Throws CaseError for more slices than
// kernels::kMaxSlices; backends say so in supports() before.
[[nodiscard]] kernels::ShrinkParams shrink_params(const Problem& problem, const Operands& operands);
[[nodiscard]] kernels::ExpandParams expand_params(const Problem& problem, const Operands& operands);

// Throws CaseError for a dtype that no kernel takes.
[[nodiscard]] kernels::Number kernel_number(Dtype dtype);

// What every kernel family refuses alike: dtypes, intermediates, too many slices.
[[nodiscard]] Support kernels_take(const Problem& problem);
// The same for those that multiply on tensor cores: 16-bit operands only, sm_80 and up.
[[nodiscard]] Support tensor_cores_take(const Problem& problem, const DeviceFacts& device);

}  // namespace lora_bench
