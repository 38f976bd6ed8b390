#pragma once

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

[[nodiscard]] std::string nvml_driver_version();
// `identity` as in DeviceFacts: "GPU-...".
[[nodiscard]] GpuReadings read_gpu(const std::string& identity);

// The reasons that slow a clock down, of NVML's bits: "sw_power_cap+hw_thermal". Idling and clocks
// that somebody set are none.
[[nodiscard]] std::string throttle_text(std::uint64_t reasons);

}  // namespace lora_bench
