#pragma once

#include "core/dtype.h"

namespace lora_bench {

// The roundings of mutants. They are not inlined: see mutant_numbers.cpp.
[[nodiscard, gnu::noinline]] float rounded_to_bf16(float value);
[[nodiscard, gnu::noinline]] float truncated_to_bf16(float value);
[[nodiscard, gnu::noinline]] float cut_to_tf32(float value);
// Towards zero; fp32 holds what it is given.
[[nodiscard]] float cut_to(Dtype dtype, float value);
[[nodiscard]] float rounded_to(Dtype dtype, float value);
// To 16 bytes, as one who trusts alignment reads.
[[nodiscard]] const void* rounded_down(const void* address);

}  // namespace lora_bench
