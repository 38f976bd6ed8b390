#pragma once

#include <cstdint>

#include "device/memory.h"
#include "ops/backend.h"
#include "scenario/case.h"
#include "workload/problem.h"

namespace lora_bench {

// What one launch touches of the operands that rotate: A, B and bias of active adapters for
// weights-cold, all operands for cold, nothing for hot.
[[nodiscard]] std::int64_t touched_bytes(const Problem& problem, CacheMode cache);

// What one set of rotating operands, and what the shared rest, take in memory: all slots, all
// lanes.
[[nodiscard]] std::int64_t rotating_allocation_bytes(const Problem& problem, CacheMode cache);
[[nodiscard]] std::int64_t shared_allocation_bytes(const Problem& problem, CacheMode cache);

// How many sets rotate: more than three caches hold, if memory and the time to make them allow, and
// at least one. Throws CaseError when even that has no room.
[[nodiscard]] std::int64_t affordable_sets(const Problem& problem, const Backend& backend,
                                           CacheMode cache, std::int64_t cache_bytes,
                                           Memory& memory);

// Whether so many sets leave some of what rotates in the last cache, so that it has to be evicted
// before they are gone round, and that only once.
[[nodiscard]] bool needs_eviction(const Problem& problem, CacheMode cache, std::int64_t sets,
                                  std::int64_t cache_bytes);

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
