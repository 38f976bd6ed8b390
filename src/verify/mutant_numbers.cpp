#include "verify/mutant_values.h"

#include <bit>
#include <cmath>
#include <cstdint>

#include "core/dtype.h"

namespace lora_bench {

// g++ 12.2 drops a truncation that it inlines into conditionals of a loop: with inlining the mutant
// that truncates h was right, and the self-test said so.
float rounded_to_bf16(float value) { return float_from_bf16(bf16_from_float(value)); }

float truncated_to_bf16(float value) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & 0xffff0000U);
}

float cut_to_tf32(float value) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & 0xffffe000U);
}

float cut_to(Dtype dtype, float value) {
  std::uint16_t bits = 0;
  if (size_bytes(dtype) != sizeof bits) {
    return value;
  }
  store(dtype, &bits, 0, value);
  if (std::fabs(load(dtype, &bits, 0)) > std::fabs(value)) {
    --bits;  // the next magnitude below
  }
  return load(dtype, &bits, 0);
}

float rounded_to(Dtype dtype, float value) {
  float rounded = 0;
  store(dtype, &rounded, 0, value);
  return load(dtype, &rounded, 0);
}

const void* rounded_down(const void* address) {
  const auto excess = reinterpret_cast<std::uintptr_t>(address) % 16;
  return static_cast<const std::byte*>(address) - excess;
}

}  // namespace lora_bench
