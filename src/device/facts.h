#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "device/memory.h"

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
// Of what launches in this memory run on, asked once; throws as gpu_facts().
[[nodiscard]] const DeviceFacts& facts_of(Space space);
// "" when a GPU can be used, else the sentence: built without CUDA, no driver, driver too old for
// the runtime, no device, no code for its architecture in this build.
[[nodiscard]] std::string why_no_gpu();

// Whether code built for architectures in CMake's words ("80,89,90a,100") runs on a device of this
// compute capability (90): a plain number carries PTX that newer devices compile, "-real" runs on
// its own major version from its minor on, "a" on exactly its own, "f" on its family.
[[nodiscard]] bool architecture_fits(const std::string& built, int compute_capability);

// The same architectures, apart by blanks, for people: "90a" is "sm_90a alone".
[[nodiscard]] std::string architectures_text(std::string_view built);

// What the runtime said when it was asked for devices, in its own terms; 0 = none.
struct DriverFacts {
  int driver_version = 0;   // 13000 = CUDA 13.0; 0 = no driver
  int runtime_version = 0;  // of this build
  int devices = 0;
  std::string error = "";  // what cudaGetDeviceCount returned, "" = success
};

// "" or the sentence of why_no_gpu() for these facts, up to the question of architectures.
[[nodiscard]] std::string why_no_device(const DriverFacts& facts);

// 13000 -> "13.0".
[[nodiscard]] std::string cuda_version_text(int version);

}  // namespace lora_bench
