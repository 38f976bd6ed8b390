#include "measure/clock.h"

#include <limits>

#include "device/nvml.h"

namespace lora_bench {

Conditions gpu_conditions(const std::string& identity) {
  const GpuReadings readings = read_gpu(identity);
  Conditions now;
  now.clock_mhz = readings.sm_clock_mhz;
  now.temperature_c = readings.temperature_c;
  now.power_w = readings.power_w;
  now.throttle = readings.throttle;
  now.load = std::numeric_limits<double>::quiet_NaN();
  return now;
}

}  // namespace lora_bench
