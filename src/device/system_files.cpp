#include "device/system_files.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <locale>
#include <sstream>
#include <string_view>
#include <vector>

namespace lora_bench {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) {
    return {};
  }
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::optional<std::int64_t> parse_integer(std::string_view text, std::string_view* rest = nullptr) {
  const std::string_view digits = trimmed(text);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{}) {
    return std::nullopt;
  }
  if (rest != nullptr) {
    *rest = trimmed(digits.substr(static_cast<std::size_t>(end - digits.data())));
  }
  return value;
}

// Limit and use of a memory cgroup, in the file names of v2 and of v1.
struct MemoryGroup {
  std::filesystem::path folder;
  const char* limit;
  const char* used;
};

std::optional<std::int64_t> headroom_bytes(const MemoryGroup& group) {
  const auto limit = parse_size_bytes(read_text(group.folder / group.limit));
  const auto used = parse_size_bytes(read_text(group.folder / group.used));
  if (!limit || !used) {
    return std::nullopt;
  }
  // File pages that nobody uses now are counted as used but are given back on demand.
  std::int64_t reclaimable = 0;
  std::istringstream stat(read_text(group.folder / "memory.stat"));
  std::string key;
  std::int64_t bytes = 0;
  while (stat >> key >> bytes) {
    if (key == "inactive_file") {
      reclaimable = bytes;
    }
  }
  return std::max<std::int64_t>(0, *limit - *used + reclaimable);
}

std::vector<std::filesystem::path> group_folders(const std::string& controller) {
  const std::string groups = read_text("/proc/self/cgroup");
  std::vector<std::filesystem::path> folders;
  // Inside a container the path may be that of the host; the mount itself is then the group.
  if (const auto path = cgroup_path(groups, "")) {
    folders.emplace_back(fmt::format("/sys/fs/cgroup{}", *path));
    folders.emplace_back("/sys/fs/cgroup");
  }
  if (const auto path = cgroup_path(groups, controller)) {
    folders.emplace_back(fmt::format("/sys/fs/cgroup/{}{}", controller, *path));
    folders.emplace_back(fmt::format("/sys/fs/cgroup/{}", controller));
  }
  return folders;
}

}  // namespace

std::string read_text(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::ostringstream text;
  text << in.rdbuf();
  return in ? text.str() : std::string{};
}

std::string value_of(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    const std::size_t colon = line.find(':');
    if (colon != std::string::npos && trimmed(line.substr(0, colon)) == key) {
      return std::string(trimmed(std::string_view(line).substr(colon + 1)));
    }
  }
  return {};
}

std::optional<std::int64_t> parse_size_bytes(const std::string& text) {
  std::string_view unit;
  const auto number = parse_integer(text, &unit);
  if (!number || *number < 0) {
    return std::nullopt;
  }
  int shift = 0;
  if (!unit.empty()) {
    const std::size_t power = std::string_view("BKMG").find(unit[0] == 'k' ? 'K' : unit[0]);
    if (power == std::string_view::npos) {
      return std::nullopt;
    }
    shift = static_cast<int>(power) * 10;
  }
  if (*number > (std::numeric_limits<std::int64_t>::max() >> shift)) {
    return std::nullopt;
  }
  return *number << shift;
}

std::optional<double> parse_cpu_quota(const std::string& text) {
  std::string_view rest;
  const auto quota = parse_integer(text, &rest);
  const auto period = parse_integer(rest);
  if (!quota || !period || *quota <= 0 || *period <= 0) {
    return std::nullopt;
  }
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

std::optional<std::string> cgroup_path(const std::string& text, const std::string& controller) {
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string names = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    if (names.find(fmt::format(",{},", controller)) != std::string::npos) {
      const std::string path = line.substr(second + 1);
      return path == "/" ? std::string{} : path;
    }
  }
  return std::nullopt;
}

int running_others(const std::string& loadavg) {
  double averages[3] = {};
  int running = 0;
  std::istringstream text(loadavg);
  text.imbue(std::locale::classic());
  text >> averages[0] >> averages[1] >> averages[2] >> running;
  return text ? std::max(0, running - 1) : 0;
}

std::optional<CpuTimes> parse_schedstat(const std::string& text) {
  constexpr double kNanoseconds = 1e-9;
  std::string_view rest;
  const auto ran = parse_integer(text, &rest);
  const auto waited = parse_integer(rest);
  if (!ran || !waited) {
    return std::nullopt;
  }
  return CpuTimes{static_cast<double>(*ran) * kNanoseconds,
                  static_cast<double>(*waited) * kNanoseconds, 0};
}

std::optional<double> parse_stolen_s(const std::string& stat, double ticks_per_s) {
  constexpr int kStolen = 8;  // "cpu", then user, nice, system, idle, iowait, irq, softirq, steal
  std::istringstream words(stat.substr(0, stat.find('\n')));
  std::vector<std::string> line;
  for (std::string word; words >> word;) {
    line.push_back(word);
  }
  if (line.size() <= kStolen || line.front() != "cpu" || !(ticks_per_s > 0)) {
    return std::nullopt;
  }
  const auto ticks = parse_integer(line[kStolen]);
  return ticks ? std::optional(static_cast<double>(*ticks) / ticks_per_s) : std::nullopt;
}

std::optional<CpuTimes> own_cpu_times() {
  CpuTimes all;
  std::error_code error;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", error)) {
    const auto times = parse_schedstat(read_text(thread.path() / "schedstat"));
    all.ran_s += times ? times->ran_s : 0;
    all.waited_s += times ? times->waited_s : 0;
  }
  all.stolen_s = parse_stolen_s(read_text("/proc/stat"), static_cast<double>(sysconf(_SC_CLK_TCK)))
                     .value_or(0);
  return all.ran_s > 0 ? std::optional(all) : std::nullopt;
}

std::optional<double> share_of_others(const std::optional<CpuTimes>& before,
                                      const std::optional<CpuTimes>& after) {
  if (!before || !after) {
    return std::nullopt;
  }
  // Threads that have ended since take their times along.
  const double ran_s = std::max(0.0, after->ran_s - before->ran_s);
  const double others_s = std::max(0.0, after->waited_s - before->waited_s) +
                          std::max(0.0, after->stolen_s - before->stolen_s);
  const double wanted_s = ran_s + others_s;
  return wanted_s > 0 ? std::optional(others_s / wanted_s) : std::nullopt;
}

std::int64_t available_memory_bytes() {
  const std::string meminfo = read_text("/proc/meminfo");
  std::int64_t available = parse_size_bytes(value_of(meminfo, "MemAvailable"))
                               .value_or(std::numeric_limits<std::int64_t>::max());
  for (const std::filesystem::path& folder : group_folders("memory")) {
    for (const MemoryGroup& group :
         {MemoryGroup{folder, "memory.max", "memory.current"},
          MemoryGroup{folder, "memory.limit_in_bytes", "memory.usage_in_bytes"}}) {
      if (const auto headroom = headroom_bytes(group)) {
        available = std::min(available, *headroom);
      }
    }
  }
  return available;
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = 1;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    cores = std::max(1, CPU_COUNT(&set));
  }
  for (const std::filesystem::path& folder : group_folders("cpu")) {
    const auto quota = parse_cpu_quota(read_text(folder / "cpu.max"));
    const auto quota_v1 = parse_cpu_quota(read_text(folder / "cpu.cfs_quota_us") + " " +
                                          read_text(folder / "cpu.cfs_period_us"));
    for (const auto& cores_of_quota : {quota, quota_v1}) {
      if (cores_of_quota) {
        cores = std::clamp(static_cast<int>(std::ceil(*cores_of_quota)), 1, cores);
      }
    }
  }
  return cores;
}

}  // namespace lora_bench
