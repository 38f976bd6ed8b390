#include <algorithm>
#include <cmath>

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

// What the caches cannot hold when the timed sequence comes to it.
std::int64_t certainly_cold_bytes(const Work& work, CacheMode cache) {
  switch (cache) {
    case CacheMode::kWeightsCold:
      return work.weight_bytes;
    case CacheMode::kCold:
      return work.bytes - work.written_bytes;  // the last writes may still sit in the cache
    case CacheMode::kHot:
      return 0;
  }
  return 0;
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

Floor floor_of(const Work& work, const Problem& problem, CacheMode cache,
               const Ceilings& ceilings) {
  const bool hot = cache == CacheMode::kHot;
  const auto bytes = static_cast<double>(work.bytes);
  const double bytes_seconds = read_seconds(hot ? ceilings.read_hot : ceilings.read_cold, bytes);
  const double peak = peak_flops_per_s(ceilings, problem.dtype);
  const double flops_seconds = peak > 0 ? static_cast<double>(work.flops) / peak : 0;
  const double cold_seconds =
      read_seconds(ceilings.read_cold, static_cast<double>(certainly_cold_bytes(work, cache)));
  const double least = std::max(flops_seconds, ceilings.launch_seconds);

  Floor floor;
  floor.seconds = std::max(bytes_seconds, least);
  floor.limit_seconds = std::min(
      floor.seconds, std::max({cold_seconds, read_seconds(ceilings.read_hot, bytes), least}));
  floor.bound_by = "bytes";
  if (least > bytes_seconds) {
    floor.bound_by = flops_seconds > ceilings.launch_seconds ? "flops" : "launch";
  }
  return floor;
}

}  // namespace lora_bench
