#pragma once

#include <cstdint>

namespace lora_bench::test {

#ifdef LORA_BENCH_SANITIZED
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// Returns how many of so many random draws a test makes. Under a sanitizer each takes several times
// as long, and few show what it looks for.
constexpr std::int64_t draws(std::int64_t many) { return kSanitized ? many / 8 : many; }

}  // namespace lora_bench::test
