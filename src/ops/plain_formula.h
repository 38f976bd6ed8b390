#pragma once

#include "ops/backend.h"

namespace lora_bench {

// The op as its definition says it, one element after the other in fp32, on the host. The second
// opinion for tests, and what the fakes compute.
void apply_plain_formula(const Problem& problem, const Operands& operands);
[[nodiscard]] Numerics plain_formula_numerics(const Problem& problem);

}  // namespace lora_bench
