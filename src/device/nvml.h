#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>

namespace lora_bench {

// What the driver's management library tells, loaded at run time: without it nothing here fails,
// figures are NaN and texts empty.
struct GpuReadings {
  double sm_clock_mhz = std::numeric_limits<double>::quiet_NaN();
  double temperature_c = std::numeric_limits<double>::quiet_NaN();
  double power_w = std::numeric_limits<double>::quiet_NaN();
  std::string throttle;  // "" = none, or not known
};

// The SM clock of one GPU alone, for reading it often: the GPU is looked up once, and a reading
// stands for 2 ms.
class SmClock {
 public:
  // `identity` as in DeviceFacts.
  explicit SmClock(const std::string& identity);
  // NaN where it is not known.
  [[nodiscard]] double mhz();

 private:
  void* device_ = nullptr;  // NVML's handle; null where there is none
  double mhz_ = std::numeric_limits<double>::quiet_NaN();
  std::chrono::steady_clock::time_point read_at_{};
};

[[nodiscard]] std::string nvml_driver_version();
// `identity` of the GPU that CUDA knows by this number.
[[nodiscard]] std::string gpu_identity(int gpu);
// `identity` as in DeviceFacts: "GPU-...".
[[nodiscard]] GpuReadings read_gpu(const std::string& identity);

// The reasons that slow a clock down, of NVML's bits: "sw_power_cap+hw_thermal". Idling and clocks
// that somebody set are none.
[[nodiscard]] std::string throttle_text(std::uint64_t reasons);

}  // namespace lora_bench
