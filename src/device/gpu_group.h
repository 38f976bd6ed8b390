#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/memory.h"

namespace lora_bench {

// "" when this host has so many usable GPUs, all alike, else the sentence.
[[nodiscard]] std::string why_no_gpus(std::int64_t wanted);

// While it lives, calls of CUDA of this thread mean this GPU.
class CurrentGpu {
 public:
  explicit CurrentGpu(int gpu);
  ~CurrentGpu();
  CurrentGpu(const CurrentGpu&) = delete;
  CurrentGpu& operator=(const CurrentGpu&) = delete;

 private:
  int gpu_, before_ = 0;
};

// The first GPUs of this host, one for each rank: its memory, and a stream on which all of its work
// is put.
class GpuGroup {
 public:
  // Throws EnvironmentError with why_no_gpus.
  explicit GpuGroup(std::int64_t gpus);
  ~GpuGroup();
  GpuGroup(const GpuGroup&) = delete;
  GpuGroup& operator=(const GpuGroup&) = delete;

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(memories_.size()); }
  [[nodiscard]] std::shared_ptr<Memory> memory(std::int64_t rank) const {
    return memories_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] void* stream(std::int64_t rank) const;

 private:
  struct Streams;
  std::vector<std::shared_ptr<Memory>> memories_;
  std::unique_ptr<Streams> streams_;
};

}  // namespace lora_bench
