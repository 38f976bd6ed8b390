#include "device/nvml.h"

#include <dlfcn.h>

#include <array>
#include <string_view>
#include <utility>

namespace lora_bench {
namespace {

// The parts of NVML's stable interface that are used here; its header is not in every toolkit.
using NvmlDevice = struct NvmlDeviceTag*;
constexpr int kSuccess = 0;
constexpr int kSmClock = 1;
constexpr int kGpuTemperature = 0;

struct Nvml {
  int (*system_get_driver_version)(char*, unsigned) = nullptr;
  int (*device_by_uuid)(const char*, NvmlDevice*) = nullptr;
  int (*clock_info)(NvmlDevice, int, unsigned*) = nullptr;
  int (*temperature)(NvmlDevice, int, unsigned*) = nullptr;
  int (*power_usage)(NvmlDevice, unsigned*) = nullptr;
  int (*throttle_reasons)(NvmlDevice, unsigned long long*) = nullptr;
};

template <typename Function>
void find(void* library, const char* symbol, Function& function) {
  if (function == nullptr) {
    function = reinterpret_cast<Function>(dlsym(library, symbol));
  }
}

Nvml load_nvml() {
  Nvml nvml;
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return nvml;
  }
  int (*init)() = nullptr;
  find(library, "nvmlInit_v2", init);
  if (init == nullptr || init() != kSuccess) {
    return nvml;
  }
  find(library, "nvmlSystemGetDriverVersion", nvml.system_get_driver_version);
  find(library, "nvmlDeviceGetHandleByUUID", nvml.device_by_uuid);
  find(library, "nvmlDeviceGetClockInfo", nvml.clock_info);
  find(library, "nvmlDeviceGetTemperature", nvml.temperature);
  find(library, "nvmlDeviceGetPowerUsage", nvml.power_usage);
  find(library, "nvmlDeviceGetCurrentClocksEventReasons", nvml.throttle_reasons);
  find(library, "nvmlDeviceGetCurrentClocksThrottleReasons", nvml.throttle_reasons);
  return nvml;
}

// Loaded once and never unloaded: the process ends soon enough.
const Nvml& nvml() {
  static const Nvml kNvml = load_nvml();
  return kNvml;
}

// Null where the library or the GPU is not there.
NvmlDevice find_device(const std::string& identity) {
  NvmlDevice device = nullptr;
  return nvml().device_by_uuid != nullptr &&
                 nvml().device_by_uuid(identity.c_str(), &device) == kSuccess
             ? device
             : nullptr;
}

double sm_clock_mhz(NvmlDevice device) {
  unsigned value = 0;
  return device != nullptr && nvml().clock_info != nullptr &&
                 nvml().clock_info(device, kSmClock, &value) == kSuccess
             ? value
             : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

SmClock::SmClock(const std::string& identity) : device_(find_device(identity)) {}

double SmClock::mhz() {
  constexpr std::chrono::milliseconds kStands{2};
  const auto now = std::chrono::steady_clock::now();
  if (now - read_at_ >= kStands) {
    mhz_ = sm_clock_mhz(static_cast<NvmlDevice>(device_));
    read_at_ = now;
  }
  return mhz_;
}

std::string nvml_driver_version() {
  std::array<char, 96> text{};
  if (nvml().system_get_driver_version == nullptr ||
      nvml().system_get_driver_version(text.data(), text.size() - 1) != kSuccess) {
    return {};
  }
  return text.data();
}

GpuReadings read_gpu(const std::string& identity) {
  GpuReadings readings;
  const NvmlDevice device = find_device(identity);
  if (device == nullptr) {
    return readings;
  }
  readings.sm_clock_mhz = sm_clock_mhz(device);
  unsigned value = 0;
  if (nvml().temperature != nullptr &&
      nvml().temperature(device, kGpuTemperature, &value) == kSuccess) {
    readings.temperature_c = value;
  }
  if (nvml().power_usage != nullptr && nvml().power_usage(device, &value) == kSuccess) {
    readings.power_w = value / 1000.0;
  }
  unsigned long long reasons = 0;
  if (nvml().throttle_reasons != nullptr && nvml().throttle_reasons(device, &reasons) == kSuccess) {
    readings.throttle = throttle_text(reasons);
  }
  return readings;
}

std::string throttle_text(std::uint64_t reasons) {
  constexpr std::array<std::pair<std::uint64_t, std::string_view>, 6> kReasons{{
      {0x04, "sw_power_cap"},
      {0x08, "hw_slowdown"},
      {0x10, "sync_boost"},
      {0x20, "sw_thermal"},
      {0x40, "hw_thermal"},
      {0x80, "hw_power_brake"},
  }};
  std::string text;
  for (const auto& [bit, reason] : kReasons) {
    if ((reasons & bit) != 0) {
      text += text.empty() ? "" : "+";
      text += reason;
    }
  }
  return text;
}

}  // namespace lora_bench
