#include <doctest/doctest.h>

#include <string>

#include "device/facts.h"
#include "device/nvml.h"

using lora_bench::architecture_fits;
using lora_bench::architectures_text;
using lora_bench::DriverFacts;
using lora_bench::why_no_device;

TEST_CASE("code for 90a runs on 9.0 alone") {
  CHECK(architecture_fits("90a", 90));
  CHECK_FALSE(architecture_fits("90a", 80));
  CHECK_FALSE(architecture_fits("90a", 100));
}

TEST_CASE("a plain architecture carries PTX for every newer device") {
  CHECK(architecture_fits("80", 80));
  CHECK(architecture_fits("80", 86));
  CHECK(architecture_fits("80", 120));
  CHECK_FALSE(architecture_fits("80", 75));
  CHECK(architecture_fits("90-virtual", 100));
}

TEST_CASE("code without PTX stays within its major version, family code within its family") {
  CHECK(architecture_fits("80-real", 89));
  CHECK_FALSE(architecture_fits("80-real", 90));
  CHECK_FALSE(architecture_fits("89-real", 80));
  CHECK(architecture_fits("100f", 103));
  CHECK_FALSE(architecture_fits("100f", 120));
}

TEST_CASE("one fitting architecture of the list is enough, and an unreadable one fits nothing") {
  CHECK(architecture_fits("80,89,90a,100", 90));
  CHECK(architecture_fits("90a,100", 100));
  CHECK_FALSE(architecture_fits("90a,100", 89));
  CHECK_FALSE(architecture_fits("native", 90));
  CHECK_FALSE(architecture_fits("", 90));
}

TEST_CASE("a build says which architectures it has code for, and when it is one alone") {
  CHECK(architectures_text("90a") == "sm_90a alone");
  CHECK(architectures_text("80 89 90a 100") == "sm_80, sm_89, sm_90a, sm_100");
  CHECK(architectures_text("86-real native") == "sm_86, native");
}

TEST_CASE("every reason for having no GPU is a sentence of its own") {
  CHECK(why_no_device({.driver_version = 0, .runtime_version = 13000}) ==
        "no NVIDIA driver: libcuda.so.1 cannot be loaded");
  CHECK(why_no_device({.driver_version = 12040, .runtime_version = 13000, .error = "x"}) ==
        "the NVIDIA driver is too old: it supports CUDA 12.4, this lora-bench was built with CUDA "
        "13.0");
  CHECK(why_no_device({.driver_version = 13000, .runtime_version = 13000, .error = "busy"}) ==
        "no usable GPU: busy");
  CHECK(why_no_device({.driver_version = 13000, .runtime_version = 13000}) ==
        "no GPU is visible: none in this machine, or CUDA_VISIBLE_DEVICES hides them");
}

TEST_CASE("a driver of the same major version serves a newer runtime") {
  CHECK(why_no_device({.driver_version = 13000, .runtime_version = 13010, .devices = 1}).empty());
  CHECK(why_no_device({.driver_version = 13020, .runtime_version = 12040, .devices = 1}).empty());
}

TEST_CASE("throttle reasons are named, and idling is none") {
  CHECK(lora_bench::throttle_text(0).empty());
  CHECK(lora_bench::throttle_text(0x1 | 0x2 | 0x100).empty());
  CHECK(lora_bench::throttle_text(0x4) == "sw_power_cap");
  CHECK(lora_bench::throttle_text(0x4 | 0x40) == "sw_power_cap+hw_thermal");
}

TEST_CASE("an unknown GPU has no readings, and asking for them is no error") {
  const lora_bench::GpuReadings readings = lora_bench::read_gpu("GPU-of-nowhere");
  CHECK(readings.power_w != readings.power_w);
  CHECK(readings.throttle.empty());
}
