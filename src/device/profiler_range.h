#pragma once

namespace lora_bench {

// What happens while it lives stands in a range "lora-bench" of a profiler that listens (NVTX);
// nothing in a build without CUDA.
class ProfilerRange {
 public:
  ProfilerRange();
  ~ProfilerRange();
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
};

}  // namespace lora_bench
