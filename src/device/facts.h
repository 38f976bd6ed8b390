#pragma once

#include <cstdint>
#include <string>

namespace lora_bench {

// What identifies the machine a figure was taken on. For the CPU: model name, cores, last-level
// cache; for a GPU: as the driver reports. Empty or 0 = not known here.
struct DeviceFacts {
  std::string kind;              // "cpu" or "cuda"
  std::string name;              // "NVIDIA H200", "AMD EPYC 7B13"
  std::string identity;          // UUID of a GPU; name, cores and microcode of a CPU
  std::string driver;            // "580.159.04"; kernel release for a CPU
  std::string runtime;           // CUDA runtime; "" for a CPU
  int compute_capability = 0;    // 90
  int multiprocessors = 0;       // SMs, or cores this process may use
  std::int64_t cache_bytes = 0;  // L2, or last-level cache
  std::int64_t memory_bytes = 0;
  double clock_mhz_max = 0;
};

[[nodiscard]] DeviceFacts cpu_facts();
// Throws EnvironmentError with the reason when there is no usable GPU.
[[nodiscard]] DeviceFacts gpu_facts();
// Of the first GPU, asked once; those of one host are alike. Nothing is known where there is none.
[[nodiscard]] const DeviceFacts& first_gpu();
// "" when a GPU can be used, else the sentence: built without CUDA, no driver, driver too old for
// the runtime, no device, no code for its architecture in this build.
[[nodiscard]] std::string why_no_gpu();

}  // namespace lora_bench
