#include "device/launch_counters.h"
#include "device/cupti.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <array>
#include <cmath>
#include <iterator>
#include <memory>
#include <sstream>
#include <vector>

#include "core/error.h"

namespace lora_bench {

namespace {

// Metrics of CUPTI by column, two of them for a share. The second name is that of GPUs of compute
// capability 12.
struct ColumnMetrics {
  const char* column;
  std::vector<const char*> metrics;
};

const std::array<ColumnMetrics, 5>& column_metrics() {
  static const std::array<ColumnMetrics, 5> kColumns{{
      {"dram_read_bytes", {"dram__bytes_read.sum", "dram__bytes_op_read.sum"}},
      {"dram_written_bytes", {"dram__bytes_write.sum", "dram__bytes_op_write.sum"}},
      {"l2_hit_rate", {"lts__t_sectors_lookup_hit.sum"}},
      {"l2_hit_rate", {"lts__t_sectors_lookup_miss.sum"}},
      {"sm_cycles", {"sm__cycles_active.max"}},
  }};
  return kColumns;
}

std::optional<std::int64_t> count_of(double value) {
  return std::isfinite(value) && value >= 0 ? std::optional<std::int64_t>(std::llround(value))
                                            : std::nullopt;
}

std::string on_one_line(const std::string& text) {
  std::istringstream words(text);
  return fmt::format("{}", fmt::join(std::istream_iterator<std::string>(words),
                                     std::istream_iterator<std::string>(), " "));
}

// What can be done about a result, as "because X: do Y".
struct Advice {
  const char* result;
  const char* cause;
  const char* remedy;
};

constexpr std::array<Advice, 9> kAdvice{{
    {"CUPTI_ERROR_INSUFFICIENT_PRIVILEGES",
     "this user may not read the GPU's counters (ERR_NVGPUCTRPERM), or another profiler holds them",
     "run as root or with CAP_SYS_ADMIN (a container: --cap-add SYS_ADMIN), or load the driver "
     "with NVreg_RestrictProfilingToAdminUsers=0 (a line 'options nvidia "
     "NVreg_RestrictProfilingToAdminUsers=0' in /etc/modprobe.d, then a reboot)"},
    {"CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES",
     "the hypervisor does not let this virtual GPU be profiled",
     "ask who runs the host to allow profiling of the virtual GPU"},
    {"CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED", "this GPU is a virtual one",
     "count on a GPU that is not shared"},
    {"CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED",
     "the GPU is in confidential computing mode, which shows no counters",
     "count on a GPU that is not"},
    {"CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED", "the GPU is divided by MIG", "count on a whole GPU"},
    {"CUPTI_ERROR_HARDWARE_BUSY", "another profiler holds the GPU's counters",
     "end ncu and nsys, and pause DCGM's profiling (dcgmi profile --pause)"},
    {"CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED", "another tool watches this process",
     "do not start it under ncu, nsys or cuda-gdb"},
    {"CUPTI_ERROR_INVALID_CHIP_NAME", "this CUPTI does not know the GPU",
     "install the CUPTI of a newer CUDA toolkit"},
    {"CUPTI_ERROR_NOT_INITIALIZED", "CUPTI cannot work with this driver",
     "install a driver that is as new as the CUDA toolkit of CUPTI"},
}};

}  // namespace

std::vector<const char*> CounterMetrics::names() const {
  std::vector<const char*> known;
  for (const char* metric : of_column) {
    if (metric != nullptr) {
      known.push_back(metric);
    }
  }
  return known;
}

CounterMetrics choose_counter_metrics(const std::string& chip,
                                      const std::function<bool(const char*)>& counts) {
  CounterMetrics chosen;
  std::vector<std::string> missing;
  for (const ColumnMetrics& column : column_metrics()) {
    const char* found = nullptr;
    for (const char* metric : column.metrics) {
      found = found == nullptr && counts(metric) ? metric : found;
    }
    if (found == nullptr) {
      missing.push_back(fmt::format("{} ({})", column.column, fmt::join(column.metrics, " or ")));
    }
    chosen.of_column.push_back(found);
  }
  if (!missing.empty()) {
    chosen.missing =
        fmt::format("this GPU ({}) does not count {}: left empty", chip, fmt::join(missing, ", "));
  }
  return chosen;
}

LaunchCounters counters_of(const CounterMetrics& metrics, const std::vector<double>& values) {
  std::vector<double> of_column;
  std::size_t next = 0;
  for (const char* metric : metrics.of_column) {
    of_column.push_back(metric != nullptr ? values.at(next++) : std::nan(""));
  }
  LaunchCounters counters;
  counters.dram_read_bytes = count_of(of_column.at(0));
  counters.dram_written_bytes = count_of(of_column.at(1));
  // Not CUPTI's own share: of one short launch, whose hits and lookups are counted in different
  // passes, that was seen at 102 % and more.
  const double hits = of_column.at(2);
  const double looked_up = hits + of_column.at(3);
  if (hits >= 0 && looked_up > 0 && std::isfinite(looked_up)) {
    counters.l2_hit_rate = hits / looked_up;
  }
  counters.sm_cycles = count_of(of_column.at(4));
  return counters;
}

std::string why_counters_failed(const std::string& call, const std::string& result,
                                const std::string& explanation) {
  for (const Advice& advice : kAdvice) {
    if (result == advice.result) {
      return fmt::format("{} ({}: {}): {}", advice.cause, call, result, advice.remedy);
    }
  }
  const std::string told =
      explanation.empty() || explanation == result ? "" : ", " + on_one_line(explanation);
  return fmt::format("the GPU's counters cannot be read ({}: {}{})", call, result, told);
}

CounterSession::CounterSession() {
  try {
    setup_ = set_up_counters();
    // Some calls refuse who has no permission only when something was counted.
    static_cast<void>(count_by_cupti(
        setup_, [] {}, [] {}));
  } catch (const CountersFailed& failed) {
    throw EnvironmentError(failed.what());
  }
}

LaunchCounters CounterSession::count(const std::function<void()>& prepare,
                                     const std::function<void()>& launch) const {
  const std::vector<double> values = count_by_cupti(setup_, prepare, launch);
  if (values.empty()) {
    throw CountersFailed(
        "the GPU's counters cannot be read (cuptiRangeProfilerGetCounterDataInfo: no range)");
  }
  return counters_of(setup_.metrics, values);
}

std::string why_no_counters() {
  try {
    static_cast<void>(CounterSession());
    return "";
  } catch (const EnvironmentError& error) {
    return error.what();
  }
}

CountLaunch count_by_own_session() {
  const auto session = std::make_shared<std::unique_ptr<const CounterSession>>();
  return [session](const std::function<void()>& prepare, const std::function<void()>& launch) {
    if (!*session) {
      *session = std::make_unique<const CounterSession>();
    }
    return (*session)->count(prepare, launch);
  };
}

}  // namespace lora_bench
