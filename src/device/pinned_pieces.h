#pragma once

#include <array>
#include <cstdint>
#include <mutex>

#include "device/cuda_handles.h"

namespace lora_bench {

// Two pieces of pinned memory, one of a kind in a process, through which many bytes go between a
// device and pageable memory: all cores copy one piece while the other is on its way. The driver's
// own way has one core copy, at a fifth of what the bus takes.
class PinnedPieces {
 public:
  static constexpr std::int64_t kFewestBytes = std::int64_t{4} << 20;  // that are worth it

  // Made when it is first asked for: later allocations would change what is free while a proof
  // looks at it.
  [[nodiscard]] static PinnedPieces& of_process();

  // Events of the GPU that copies.
  using Events = std::array<CudaEvent, 2>;
  // Both end before they return. False, and nothing done, where there is no such memory or another
  // thread uses it.
  [[nodiscard]] bool copy_in(void* to, const void* from, std::int64_t bytes, cudaStream_t stream,
                             const Events& events);
  [[nodiscard]] bool copy_out(void* to, const void* from, std::int64_t bytes, cudaStream_t stream,
                              const Events& events);

 private:
  PinnedPieces();

  std::mutex in_use_;
  std::array<void*, 2> pieces_{};  // for the life of the process
};

// Memory of the host that copies to and from a GPU take as it is for as long as this lives; where
// it cannot be had they are slower, no more.
class PinnedRange {
 public:
  PinnedRange(void* start, std::int64_t bytes);
  ~PinnedRange();
  PinnedRange(const PinnedRange&) = delete;
  PinnedRange& operator=(const PinnedRange&) = delete;

 private:
  void* start_;
};

}  // namespace lora_bench
