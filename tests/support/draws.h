#pragma once

#include <cstdint>

namespace lora_bench::test {

// Of random cases. Under a sanitizer each takes ten times as long, and what it looks for shows in
// few.
constexpr std::int64_t draws(std::int64_t many) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return many / 8;
#else
  return many;
#endif
}

}  // namespace lora_bench::test
