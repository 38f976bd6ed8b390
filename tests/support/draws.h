#pragma once

#include <cstdint>

namespace lora_bench::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// Of random cases. Under a sanitizer each takes several times as long, and few show what it looks
// for.
constexpr std::int64_t draws(std::int64_t many) { return kSanitized ? many / 8 : many; }

}  // namespace lora_bench::test
