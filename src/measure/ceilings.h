#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "device/facts.h"
#include "workload/problem.h"

namespace lora_bench {

// What this machine can do at best, measured, never looked up.
struct Ceilings {
  struct Point {
    std::int64_t bytes = 0;
    double seconds = 0;
  };
  std::string identity;          // DeviceFacts::identity it was measured on
  std::vector<Point> read_cold;  // read stream by size, data from memory; ascending bytes
  std::vector<Point> read_hot;   // the same, data in the last cache where it fits
  double copy_bytes_per_s = 0;   // read + written
  double launch_seconds = 0;     // one empty launch in the sequence that is timed
  struct Peak {
    Dtype dtype = Dtype::kFp32;
    double flops_per_s = 0;
  };
  std::vector<Peak> peaks;  // matrix product
};

// From the cache file of this device and tool version, else measured and stored (a store that
// fails is a warning on stderr, not an error). `refresh` measures anew.
[[nodiscard]] Ceilings obtain_ceilings(const DeviceFacts& device, bool refresh);
[[nodiscard]] Ceilings measure_host_ceilings();
[[nodiscard]] Ceilings measure_device_ceilings();

// Time to read so many bytes: log-linear between the measured sizes, at the last slope above.
[[nodiscard]] double read_seconds(const std::vector<Ceilings::Point>& curve, double bytes);

// What the case needs at least; formulas in docs/metrics.md.
struct Work {
  std::int64_t bytes = 0;         // each distinct active adapter once at its own rank, x, y
  std::int64_t weight_bytes = 0;  // the part that is A and B (and bias)
  std::int64_t flops = 0;
  std::int64_t rows = 0;  // rows with an adapter of rank > 0
};
[[nodiscard]] Work count_work(const Problem& problem);

struct Floor {
  double seconds = 0;
  double limit_seconds = 0;  // below this no time can be true: INVALID
  std::string bound_by;  // "bytes", "flops" or "launch"
};
[[nodiscard]] Floor floor_of(const Work& work, const Problem& problem, CacheMode cache,
                             const Ceilings& ceilings);

}  // namespace lora_bench
