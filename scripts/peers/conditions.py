"""How a GPU fares, read through NVML as src/device/nvml.cpp does: a start of nvidia-smi for each row takes longer."""
import ctypes

SM_CLOCK, TEMPERATURE = 1, 0
REASONS = {0x04: "sw_power_cap", 0x08: "hw_slowdown", 0x10: "sync_boost", 0x20: "sw_thermal", 0x40: "hw_thermal",
           0x80: "hw_power_brake"}


def columns_of(identity):
    """Clock, temperature, power and throttling of the GPU of this UUID: of a row; those that NVML tells."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2() != 0:
            return {}
        device = ctypes.c_void_p()
        if nvml.nvmlDeviceGetHandleByUUID(identity.encode(), ctypes.byref(device)) != 0:
            return {}
        clock, temperature, power, reasons = ctypes.c_uint(), ctypes.c_uint(), ctypes.c_uint(), ctypes.c_ulonglong()
        told = {}
        if nvml.nvmlDeviceGetClockInfo(device, SM_CLOCK, ctypes.byref(clock)) == 0:
            told["clock_mhz"] = float(clock.value)
        if nvml.nvmlDeviceGetTemperature(device, TEMPERATURE, ctypes.byref(temperature)) == 0:
            told["temperature_c"] = float(temperature.value)
        if nvml.nvmlDeviceGetPowerUsage(device, ctypes.byref(power)) == 0:
            told["power_w"] = power.value / 1000
        if nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device, ctypes.byref(reasons)) == 0:
            told["throttle"] = "+".join(text for bit, text in REASONS.items() if reasons.value & bit)
        return told
    except (OSError, AttributeError):
        return {}
