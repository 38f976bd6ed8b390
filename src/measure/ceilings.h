#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "device/facts.h"
#include "workload/problem.h"

namespace lora_bench {

// The end of the read curves.
constexpr std::int64_t kLargestReadBytes = std::int64_t{1} << 30;

// What this machine can do at best, measured, never looked up.
struct Ceilings {
  struct Point {
    std::int64_t bytes = 0;
    double seconds = 0;
  };
  std::string identity;          // DeviceFacts::identity it was measured on
  std::int64_t cache_bytes = 0;  // DeviceFacts::cache_bytes of that device
  // The most that caches can keep from one launch to the next: the L2 of a GPU; on a CPU the last
  // cache and as much again, for the private caches of its cores.
  std::int64_t kept_bytes = 0;
  std::vector<Point> memory_curve;  // reading so many bytes from memory; ascending bytes
  // Reading, or reading and writing back, so many bytes in all, the same again and again: they come
  // from the last cache where it holds them.
  std::vector<Point> cache_curve;
  // Reading so many bytes once, the same in each launch, where the last cache holds not nearly all
  // of them: the best that any choice of what it keeps gave. Empty on a CPU.
  std::vector<Point> again_curve;
  double copy_bytes_per_s = 0;       // read + written
  double launch_seconds = 0;         // one empty launch in the sequence that is timed
  double update_launch_seconds = 0;  // one that updates a few bytes which the launch before wrote
  struct Peak {
    Dtype dtype = Dtype::kFp32;
    double flops_per_s = 0;
  };
  std::vector<Peak> peaks;  // matrix product; on a CPU fused multiply-adds in registers
  // fp32 product by Eigen on all cores: what a good library reaches (CPU only, else 0). The floor
  // does not use it: a kernel may be better than a library, but not than the registers.
  double product_flops_per_s = 0;
  // Threads of others that ran meanwhile, per core of the host (CPU only, else 0).
  double load = 0;
};
// Above this the ceilings of a CPU may be too low, and floors too high.
constexpr double kDisturbingLoad = 0.5;

// The cache file: $XDG_CACHE_HOME/lora-bench or ~/.cache/lora-bench, one file a device and tool
// version; empty when the environment names no place.
[[nodiscard]] std::filesystem::path ceilings_file(const DeviceFacts& device);
[[nodiscard]] std::string ceilings_to_json(const Ceilings& ceilings);
// Nothing when the text is not a whole, sane record (cut short, edited, of another schema).
[[nodiscard]] std::optional<Ceilings> ceilings_from_json(const std::string& text);

// From the cache file of this device and tool version, else measured and stored (a store that
// fails is a warning on stderr, not an error). `refresh` measures anew, and where others use the
// machine meanwhile keeps the better of each figure.
[[nodiscard]] Ceilings obtain_ceilings(const DeviceFacts& device, bool refresh);
// Measures once more and keeps the better of each figure: what was measured while others used the
// machine is too low, and no measurement is too high.
[[nodiscard]] Ceilings raise_ceilings(const DeviceFacts& device, const Ceilings& known);
[[nodiscard]] Ceilings best_of(const Ceilings& one, const Ceilings& other);
[[nodiscard]] Ceilings measure_host_ceilings();
[[nodiscard]] Ceilings measure_device_ceilings();

// Time to read so many bytes: log-linear between the measured sizes, at the last slope above.
[[nodiscard]] double read_seconds(const std::vector<Ceilings::Point>& curve, double bytes);
// Least time in which so many bytes pass between the cores and the last cache, wherever they come
// from: at the best rate that its curve tells. `chained_bytes` of them can begin to pass only when
// the launch before has ended: they take as long as the curve says, which has the latency too, and
// beyond what the cache holds the best rate.
[[nodiscard]] double cache_seconds(const Ceilings& ceilings, double bytes, double chained_bytes);

// Least time in which a launch touches so many distinct bytes that the launch before touched too;
// 0 where the curve does not tell.
[[nodiscard]] double again_seconds(const Ceilings& ceilings, double bytes);

// What the case needs at least; formulas in docs/metrics.md.
struct Work {
  std::int64_t bytes = 0;          // each distinct active adapter once at its own rank, x, y
  std::int64_t weight_bytes = 0;   // the part that is A and B (and bias)
  std::int64_t written_bytes = 0;  // the part that the op writes
  std::int64_t updated_bytes = 0;  // of what it writes that which it reads first: y that it adds to
  std::int64_t flops = 0;
  std::int64_t rows = 0;  // rows with an adapter of rank > 0
};
[[nodiscard]] Work count_work(const Problem& problem);
// The bytes of one launch in a timed sequence that caches which keep `kept_bytes` cannot spare the
// memory.
[[nodiscard]] std::int64_t bytes_from_memory(const Work& work, CacheMode cache,
                                             std::int64_t kept_bytes);

struct Floor {
  double seconds = 0;         // nothing that does the work is faster: a time below is INVALID
  std::string bound_by;       // the largest term of it: "memory", "cache", "flops" or "launch"
  double stream_seconds = 0;  // one pass over all bytes at the memory curve, which caches may beat
};
[[nodiscard]] Floor floor_of(const Work& work, const Problem& problem, CacheMode cache,
                             const Ceilings& ceilings);

// Measured curves, ascending in bytes, as ceilings: what a disturbed run measured too high comes
// down to what other sizes prove possible.

// Reading more cannot take less.
void make_monotone(std::vector<Ceilings::Point>& curve);
// Of data from memory: reading more cannot take longer than reading it piece by piece. (Not so
// where the pieces fit into a cache and the whole does not.)
void make_no_slower_than_pieces(std::vector<Ceilings::Point>& curve);
// Both of the memory curve, and of the cache curve, of the same sizes, that it is nowhere above
// that: what comes from memory passes through the cache.
void settle_curves(Ceilings& ceilings);

}  // namespace lora_bench
