#pragma once

#include <string>

namespace lora_bench {

// What happens while it lives stands in a range "lora-bench" of a profiler that listens (NVTX), and
// there in one of that name; nothing in a build without CUDA.
class ProfilerRange {
 public:
  explicit ProfilerRange(const std::string& name);
  ~ProfilerRange();
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
};

}  // namespace lora_bench
