#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace lora_bench {

// What Linux tells in /proc and /sys, as text. Parsing is apart from reading, so that it is tested
// with the texts of machines that the tests do not run on.

// "" when the file cannot be read.
[[nodiscard]] std::string read_text(const std::filesystem::path& file);

// The value of the first line "key : value"; "" when there is none.
[[nodiscard]] std::string value_of(const std::string& text, const std::string& key);

// "32768K", "32M", "16117268 kB", "max" (= nothing): bytes.
[[nodiscard]] std::optional<std::int64_t> parse_size_bytes(const std::string& text);

// Cores of a "quota period" pair as in cgroup v2 cpu.max ("200000 100000"); nothing for "max" or
// -1.
[[nodiscard]] std::optional<double> parse_cpu_quota(const std::string& text);

// The folder of a controller from the text of /proc/self/cgroup: v1 by its name, v2 by "0::";
// relative to the mount; nothing when there is no such line.
[[nodiscard]] std::optional<std::string> cgroup_path(const std::string& text,
                                                     const std::string& controller);

// Threads that run or want to, from the text of /proc/loadavg, without the one that reads it; 0
// when it is not told.
[[nodiscard]] int running_others(const std::string& loadavg);

// What this process got of the CPUs and what it did not get, in seconds since some start.
struct CpuTimes {
  double ran_s = 0;     // its threads together
  double waited_s = 0;  // they were ready to run, and others ran
  double stolen_s = 0;  // a hypervisor ran others while this machine had work
};
// The times of one thread from the text of its schedstat, nanoseconds both; nothing when it is not
// told.
[[nodiscard]] std::optional<CpuTimes> parse_schedstat(const std::string& text);
// Stolen seconds of all CPUs from the text of /proc/stat, which counts ticks.
[[nodiscard]] std::optional<double> parse_stolen_s(const std::string& stat, double ticks_per_s);
// Of this process now; nothing where the kernel does not tell.
[[nodiscard]] std::optional<CpuTimes> own_cpu_times();
// Of the CPU time that was wanted between two readings the share that others had, from 0 to 1.
[[nodiscard]] std::optional<double> share_of_others(const std::optional<CpuTimes>& before,
                                                    const std::optional<CpuTimes>& after);

// Bytes that this process may still take: MemAvailable, less if its cgroup has a lower limit.
[[nodiscard]] std::int64_t available_memory_bytes();

// Cores that this process may use at once: affinity, less if its cgroup has a quota; at least 1.
[[nodiscard]] int usable_cores();

}  // namespace lora_bench
