#pragma once

#include <string>
#include <string_view>

namespace lora_bench {

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
