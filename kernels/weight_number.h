#pragma once

#include <cstdint>

namespace lora_bench::kernels {

// Storage of A and B, of kernels that take eight bits.
enum class WeightNumber : std::uint8_t { kFp32, kBf16, kFp16, kE4m3, kE5m2 };

}  // namespace lora_bench::kernels
