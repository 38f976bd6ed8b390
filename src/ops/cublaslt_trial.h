#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "ops/cublaslt_library.h"

namespace lora_bench {

// Multiplies operands of one shape by one algorithm.
using LtMultiply = std::function<void(const LtOperands&, cudaStream_t)>;

// Which of some algorithms is the quickest, by a clock, with weights that are not in the cache. An
// earlier one stays where a later one is no more than 1 % quicker.
[[nodiscard]] std::size_t quickest_of(const std::vector<LtMultiply>& ways, const LtShape& shape,
                                      std::int64_t workspace_bytes);

// Whether an algorithm rounds the sum of the product and all that is added to it, rather than the
// product first; true where nothing is added or nothing rounded. The library has some that do not,
// of depths that no tile fits, and does not say so: the multiplication of one number tells.
[[nodiscard]] bool rounds_once(const LtShape& shape, std::int64_t workspace_bytes,
                               const LtMultiply& multiply);

}  // namespace lora_bench
