#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>

#include "device/facts.h"
#include "device/system_files.h"

namespace lora_bench {
namespace {

// Where /sys says nothing (some virtual machines): large enough that a rotation leaves the cache
// of most machines.
constexpr std::int64_t kUnknownCacheBytes = std::int64_t{32} << 20;

struct CacheOfCore {
  std::int64_t level = 0;
  std::int64_t bytes = 0;
  std::string shared_with;
};

CacheOfCore last_cache_of(int cpu) {
  CacheOfCore last;
  const std::string caches = fmt::format("/sys/devices/system/cpu/cpu{}/cache", cpu);
  for (int index = 0;; ++index) {
    const std::filesystem::path folder = fmt::format("{}/index{}", caches, index);
    const auto level = parse_size_bytes(read_text(folder / "level"));
    if (!level) {
      return last;
    }
    const auto bytes = parse_size_bytes(read_text(folder / "size"));
    if (*level >= last.level && bytes && !read_text(folder / "type").starts_with("Instruction")) {
      last = {*level, *bytes, read_text(folder / "shared_cpu_list")};
    }
  }
}

// All last-level caches that this process can fill, together: data stays in them even when no
// single one could hold it.
std::int64_t last_cache_bytes() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) {
    return kUnknownCacheBytes;
  }
  std::set<std::string> seen;
  std::int64_t bytes = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(static_cast<std::size_t>(cpu), &set)) {
      continue;
    }
    const CacheOfCore cache = last_cache_of(cpu);
    if (cache.bytes > 0 && seen.insert(cache.shared_with).second) {
      bytes += cache.bytes;
    }
  }
  return bytes > 0 ? bytes : kUnknownCacheBytes;
}

}  // namespace

DeviceFacts cpu_facts() {
  const std::string cpuinfo = read_text("/proc/cpuinfo");
  DeviceFacts facts;
  facts.kind = "cpu";
  facts.name = value_of(cpuinfo, "model name");
  if (facts.name.empty()) {
    facts.name = "unknown CPU";
  }
  facts.multiprocessors = usable_cores();
  facts.cache_bytes = last_cache_bytes();
  facts.memory_bytes =
      parse_size_bytes(value_of(read_text("/proc/meminfo"), "MemTotal")).value_or(0);
  const std::string microcode = value_of(cpuinfo, "microcode");
  facts.identity = fmt::format(
      "{}, family {} model {} stepping {}, microcode {}, {} cores, {} MiB", facts.name,
      value_of(cpuinfo, "cpu family"), value_of(cpuinfo, "model"), value_of(cpuinfo, "stepping"),
      microcode.empty() ? "unknown" : microcode, facts.multiprocessors, facts.cache_bytes >> 20);
  utsname kernel{};
  if (uname(&kernel) == 0) {
    facts.driver = kernel.release;
  }
  const auto khz =
      parse_size_bytes(read_text("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"));
  facts.clock_mhz_max = static_cast<double>(khz.value_or(0)) / 1000;
  return facts;
}

const DeviceFacts& facts_of(Space space) {
  static const DeviceFacts kHost = cpu_facts();
  if (space == Space::kHost) {
    return kHost;
  }
  static const DeviceFacts kDevice = gpu_facts();
  return kDevice;
}

const DeviceFacts& first_gpu() {
  static const DeviceFacts kFacts = why_no_gpu().empty() ? gpu_facts() : DeviceFacts{};
  return kFacts;
}

}  // namespace lora_bench
