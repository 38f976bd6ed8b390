#pragma once

#include <cstdint>

#include "device/memory.h"

namespace lora_bench {

// Fills the caches of a space with data that nobody needs.
class Eviction {
 public:
  // Does nothing when `cache_bytes` is 0.
  Eviction(Memory& memory, std::int64_t cache_bytes);
  ~Eviction();
  Eviction(const Eviction&) = delete;
  Eviction& operator=(const Eviction&) = delete;
  void run();

 private:
  Memory& memory_;
  std::int64_t bytes_;
  void* data_ = nullptr;
  std::uint64_t read_ = 0;  // keeps the reads alive
};

}  // namespace lora_bench
