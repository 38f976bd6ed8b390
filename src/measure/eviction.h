#pragma once

#include <cstdint>

#include "device/memory.h"

namespace lora_bench {

// Fills the caches of a space with data that nobody needs: three times the last cache.
class Eviction {
 public:
  // Does nothing when `cache_bytes` is 0.
  Eviction(Memory& memory, std::int64_t cache_bytes);
  void run();

 private:
  Memory& memory_;
  GuardedBuffer buffer_;
  std::uint64_t read_ = 0;  // keeps the reads alive
};

}  // namespace lora_bench
