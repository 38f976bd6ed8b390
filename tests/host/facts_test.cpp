#include <doctest/doctest.h>

#include <cstdint>

#include "core/error.h"
#include "device/facts.h"
#include "device/memory.h"
#include "device/system_files.h"

using lora_bench::DeviceFacts;

TEST_CASE("who runs besides the reader is told by the fourth figure of the load") {
  CHECK(lora_bench::running_others("5.05 3.24 3.77 7/121 25676\n") == 6);
  CHECK(lora_bench::running_others("0.00 0.01 0.05 1/98 300\n") == 0);
  CHECK(lora_bench::running_others("0.00 0.01 0.05 0/98 300\n") == 0);
  CHECK(lora_bench::running_others("") == 0);
  CHECK(lora_bench::running_others("unknown") == 0);
}

TEST_CASE("a thread's schedstat tells what it ran and what it waited") {
  const auto times = lora_bench::parse_schedstat("2500000000 500000000 77\n");
  REQUIRE(times.has_value());
  CHECK(times->ran_s == doctest::Approx(2.5));
  CHECK(times->waited_s == doctest::Approx(0.5));
  CHECK_FALSE(lora_bench::parse_schedstat("").has_value());
  CHECK_FALSE(lora_bench::parse_schedstat("12").has_value());
}

TEST_CASE("stolen time is the eighth figure of all CPUs together") {
  const std::string stat = "cpu  92509 0 10726 21195 294 0 151 604 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n";
  CHECK(lora_bench::parse_stolen_s(stat, 100).value_or(0) == doctest::Approx(6.04));
  CHECK_FALSE(lora_bench::parse_stolen_s("cpu  1 2 3 4 5 6 7\n", 100).has_value());
  CHECK_FALSE(lora_bench::parse_stolen_s("intr 1 2 3 4 5 6 7 8 9\n", 100).has_value());
  CHECK_FALSE(lora_bench::parse_stolen_s("", 100).has_value());
}

TEST_CASE("the share of others is what was wanted and not got") {
  using lora_bench::CpuTimes;
  CHECK(lora_bench::share_of_others(CpuTimes{1, 1, 1}, CpuTimes{4, 1.5, 1.5}).value_or(-1) ==
        doctest::Approx(0.25));
  CHECK(lora_bench::share_of_others(CpuTimes{1, 1, 1}, CpuTimes{2, 1, 1}).value_or(-1) == 0);
  // A thread that ended takes its times along.
  CHECK(lora_bench::share_of_others(CpuTimes{1, 3, 1}, CpuTimes{2, 1, 1}).value_or(-1) == 0);
  CHECK_FALSE(lora_bench::share_of_others(CpuTimes{1, 1, 1}, CpuTimes{1, 1, 1}).has_value());
  CHECK_FALSE(lora_bench::share_of_others({}, CpuTimes{2, 1, 1}).has_value());
  CHECK_FALSE(lora_bench::share_of_others(CpuTimes{2, 1, 1}, {}).has_value());
}

TEST_CASE("sizes are read with the units that /proc and /sys use") {
  CHECK(lora_bench::parse_size_bytes("32768K\n") == std::int64_t{32} << 20);
  CHECK(lora_bench::parse_size_bytes("  16117268 kB") == std::int64_t{16117268} * 1024);
  CHECK(lora_bench::parse_size_bytes("64M") == std::int64_t{64} << 20);
  CHECK(lora_bench::parse_size_bytes("3\n") == 3);
  CHECK_FALSE(lora_bench::parse_size_bytes("max"));
  CHECK_FALSE(lora_bench::parse_size_bytes(""));
  CHECK_FALSE(lora_bench::parse_size_bytes("-1"));
  CHECK_FALSE(lora_bench::parse_size_bytes("9223372036854775807K"));
}

TEST_CASE("a value is found by its whole key, in the first line that has it") {
  const std::string text = "model\t\t: 2\nmodel name\t: AMD EPYC 7B13\nmodel name\t: other\n";
  CHECK(lora_bench::value_of(text, "model name") == "AMD EPYC 7B13");
  CHECK(lora_bench::value_of(text, "model") == "2");
  CHECK(lora_bench::value_of(text, "name").empty());
}

TEST_CASE("a CPU quota is cores, and no quota is nothing") {
  CHECK(lora_bench::parse_cpu_quota("250000 100000\n") == doctest::Approx(2.5));
  CHECK_FALSE(lora_bench::parse_cpu_quota("max 100000"));
  CHECK_FALSE(lora_bench::parse_cpu_quota("-1 100000"));
  CHECK_FALSE(lora_bench::parse_cpu_quota(""));
}

TEST_CASE("the cgroup of a controller is found in both versions") {
  const std::string mixed = "4:cpu,cpuacct:/a\n3:memory:/b/c\n0::/\n";
  CHECK(lora_bench::cgroup_path(mixed, "memory") == "/b/c");
  CHECK(lora_bench::cgroup_path(mixed, "cpu") == "/a");
  CHECK(lora_bench::cgroup_path(mixed, "") == "");
  CHECK_FALSE(lora_bench::cgroup_path(mixed, "pids"));
  CHECK(lora_bench::cgroup_path("0::/user.slice\n", "") == "/user.slice");
}

TEST_CASE("the facts of this CPU are whole and do not change from call to call") {
  const DeviceFacts facts = lora_bench::cpu_facts();
  CHECK(facts.kind == "cpu");
  CHECK_FALSE(facts.name.empty());
  CHECK(facts.identity.find(facts.name) == 0);
  CHECK_FALSE(facts.driver.empty());
  CHECK(facts.runtime.empty());
  CHECK(facts.multiprocessors >= 1);
  CHECK(facts.cache_bytes >= std::int64_t{1} << 16);
  CHECK(facts.memory_bytes > 0);
  CHECK(facts.identity == lora_bench::cpu_facts().identity);
}

TEST_CASE("available host memory is more than nothing and at most what the machine has") {
  const std::int64_t available = lora_bench::make_host_memory()->available_bytes();
  CHECK(available > 0);
  CHECK(available <= lora_bench::cpu_facts().memory_bytes);
}

TEST_CASE("without a usable GPU everything that needs one says the same reason") {
  const std::string reason = lora_bench::why_no_gpu();
  if (reason.empty()) {
    CHECK(lora_bench::gpu_facts().kind == "cuda");
    return;
  }
  CHECK_THROWS_WITH_AS((void)lora_bench::gpu_facts(), reason.c_str(), lora_bench::EnvironmentError);
  CHECK_THROWS_WITH_AS((void)lora_bench::make_device_memory(), reason.c_str(),
                       lora_bench::EnvironmentError);
}
