#include <algorithm>
#include <cmath>
#include <utility>

#include "measure/ceilings.h"

namespace lora_bench {
namespace {

// A dtype without a peak of its own is charged at the best of all: never a floor that is too high.
double peak_flops_per_s(const Ceilings& ceilings, Dtype dtype) {
  double best = 0;
  for (const Ceilings::Peak& peak : ceilings.peaks) {
    if (peak.dtype == dtype) {
      return peak.flops_per_s;
    }
    best = std::max(best, peak.flops_per_s);
  }
  return best;
}

// A cache curve tells the cache's speed up to this share of its size; near its size some of the
// bytes come from memory.
constexpr double kShareHeld = 0.5;
// Below this share of the cache a curve tells more of starting than of the rate.
constexpr double kLeastShareOfRate = 1.0 / 16;
// Times are this many times as many bytes apart at least, so that their noise counts little.
constexpr double kLeastSpanOfRate = 4;

// The best rate at which bytes pass between the cores and the last cache.
double best_rate(const Ceilings& ceilings) {
  const std::vector<Ceilings::Point>& curve = ceilings.cache_curve;
  double bytes_per_s = 0;
  for (const Ceilings::Point& more : curve) {
    const auto bytes = static_cast<double>(more.bytes);
    bytes_per_s = std::max(bytes_per_s, bytes / more.seconds);
    for (const Ceilings::Point& less : curve) {
      const auto from = static_cast<double>(less.bytes);
      if (from >= kLeastShareOfRate * static_cast<double>(ceilings.cache_bytes) &&
          bytes >= kLeastSpanOfRate * from && more.seconds > less.seconds) {
        bytes_per_s = std::max(bytes_per_s, (bytes - from) / (more.seconds - less.seconds));
      }
    }
  }
  return bytes_per_s;
}

}  // namespace

double read_seconds(const std::vector<Ceilings::Point>& curve, double bytes) {
  if (curve.empty() || bytes <= 0) {
    return 0;
  }
  if (bytes <= static_cast<double>(curve.front().bytes)) {
    return curve.front().seconds * bytes / static_cast<double>(curve.front().bytes);
  }
  if (curve.size() == 1) {
    return curve.front().seconds * bytes / static_cast<double>(curve.front().bytes);
  }
  std::size_t next = 1;
  while (next + 1 < curve.size() && static_cast<double>(curve[next].bytes) < bytes) {
    ++next;
  }
  const Ceilings::Point& low = curve[next - 1];
  const Ceilings::Point& high = curve[next];
  const double low_bytes = static_cast<double>(low.bytes);
  const double high_bytes = static_cast<double>(high.bytes);
  if (bytes >= high_bytes) {
    return high.seconds +
           (bytes - high_bytes) * (high.seconds - low.seconds) / (high_bytes - low_bytes);
  }
  const double share = std::log(bytes / low_bytes) / std::log(high_bytes / low_bytes);
  return low.seconds * std::pow(high.seconds / low.seconds, share);
}

double cache_seconds(const Ceilings& ceilings, double bytes, double chained_bytes) {
  const std::vector<Ceilings::Point>& curve = ceilings.cache_curve;
  if (curve.empty()) {
    return 0;
  }
  const double most_held = kShareHeld * static_cast<double>(ceilings.cache_bytes);
  std::size_t last = 0;  // the largest size that the cache holds
  while (last + 1 < curve.size() && static_cast<double>(curve[last + 1].bytes) <= most_held) {
    ++last;
  }
  const double bytes_per_s = best_rate(ceilings);
  const double beyond = chained_bytes - static_cast<double>(curve[last].bytes);
  const double chained_seconds =
      beyond <= 0 ? read_seconds(curve, chained_bytes) : curve[last].seconds + beyond / bytes_per_s;
  return std::max(chained_seconds, bytes / bytes_per_s);
}

double again_seconds(const Ceilings& ceilings, double bytes) {
  const std::vector<Ceilings::Point>& curve = ceilings.again_curve;
  return curve.empty() || bytes < static_cast<double>(curve.front().bytes)
             ? 0
             : read_seconds(curve, bytes);
}

std::int64_t bytes_from_memory(const Work& work, CacheMode cache, std::int64_t kept_bytes) {
  if (cache == CacheMode::kCold) {
    return work.bytes - work.written_bytes;  // the last writes may still sit in the cache
  }
  const std::int64_t cold = cache == CacheMode::kWeightsCold ? work.weight_bytes : 0;
  // What the launches share lies in the cache but for what exceeds it. Best is to spare the memory
  // what is read and written back, which it would see twice.
  const std::int64_t shared = work.bytes - cold - work.updated_bytes;
  const std::int64_t exceeding = std::max<std::int64_t>(0, shared - kept_bytes);
  const std::int64_t seen_once = shared - work.updated_bytes;
  return cold + exceeding + std::max<std::int64_t>(0, exceeding - seen_once);
}

Floor floor_of(const Work& work, const Problem& problem, CacheMode cache,
               const Ceilings& ceilings) {
  const auto bytes = static_cast<double>(work.bytes);
  const auto from_memory = static_cast<double>(bytes_from_memory(work, cache, ceilings.kept_bytes));
  const auto distinct_bytes = static_cast<double>(work.bytes - work.updated_bytes);
  const double peak =
      peak_flops_per_s(ceilings, problem.dtype[has_shrink(problem.op) ? Role::kX : Role::kB]);
  const double flops_seconds = peak > 0 ? static_cast<double>(work.flops) / peak : 0;
  const double stream_seconds = read_seconds(ceilings.memory_curve, bytes);
  // A launch that adds to what the launch before wrote touches no activation before that one's end.
  const bool chained = work.updated_bytes > 0 && cache != CacheMode::kCold;
  const double launch_seconds = chained ? ceilings.update_launch_seconds : ceilings.launch_seconds;
  const double cache_bound = cache_seconds(
      ceilings, bytes, chained ? static_cast<double>(work.bytes - work.weight_bytes) : 0);

  const std::pair<const char*, double> terms[] = {
      {"memory", read_seconds(ceilings.memory_curve, from_memory)},
      // Where a disturbed run measured a cache that is slower than the memory, memory counts. What
      // a cache keeps of bytes that all come again is no less than what it keeps when weights do
      // not.
      {"cache",
       std::min(std::max(cache_bound, again_seconds(ceilings, distinct_bytes)), stream_seconds)},
      {"flops", flops_seconds},
      {"launch", launch_seconds}};
  Floor floor;
  floor.stream_seconds = std::max({stream_seconds, flops_seconds, launch_seconds});
  for (const auto& [name, seconds] : terms) {
    if (floor.bound_by.empty() || seconds > floor.seconds) {
      floor.seconds = seconds;
      floor.bound_by = name;
    }
  }
  return floor;
}

}  // namespace lora_bench
