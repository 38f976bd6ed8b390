#include <algorithm>
#include <cmath>

#include "measure/ceilings.h"

namespace lora_bench {
namespace {

// Sizes that only one of the two has stay as they are.
std::vector<Ceilings::Point> lower_of(std::vector<Ceilings::Point> curve,
                                      const std::vector<Ceilings::Point>& other) {
  for (Ceilings::Point& point : curve) {
    for (const Ceilings::Point& candidate : other) {
      if (candidate.bytes == point.bytes) {
        point.seconds = std::min(point.seconds, candidate.seconds);
      }
    }
  }
  return curve;
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

void make_monotone(std::vector<Ceilings::Point>& curve) {
  for (std::size_t i = curve.size(); i-- > 1;) {
    curve[i - 1].seconds = std::min(curve[i - 1].seconds, curve[i].seconds);
  }
}

void make_no_slower_than_pieces(std::vector<Ceilings::Point>& curve) {
  for (std::size_t i = 1; i < curve.size(); ++i) {
    const double pieces =
        static_cast<double>(curve[i].bytes) / static_cast<double>(curve[i - 1].bytes);
    curve[i].seconds = std::min(curve[i].seconds, pieces * curve[i - 1].seconds);
  }
}

void settle_curves(Ceilings& ceilings) {
  make_monotone(ceilings.memory_curve);
  make_no_slower_than_pieces(ceilings.memory_curve);
  for (std::size_t i = 0; i < ceilings.cache_curve.size(); ++i) {
    double& seconds = ceilings.cache_curve[i].seconds;
    seconds = std::min(seconds, ceilings.memory_curve[i].seconds);
  }
  make_monotone(ceilings.cache_curve);
}

Ceilings best_of(const Ceilings& one, const Ceilings& other) {
  Ceilings best = one;
  best.memory_curve = lower_of(one.memory_curve, other.memory_curve);
  best.cache_curve = lower_of(one.cache_curve, other.cache_curve);
  best.again_curve = lower_of(one.again_curve, other.again_curve);
  best.copy_bytes_per_s = std::max(one.copy_bytes_per_s, other.copy_bytes_per_s);
  best.launch_seconds = std::min(one.launch_seconds, other.launch_seconds);
  best.update_launch_seconds = std::min(one.update_launch_seconds, other.update_launch_seconds);
  best.product_flops_per_s = std::max(one.product_flops_per_s, other.product_flops_per_s);
  best.load = std::min(one.load, other.load);
  for (Ceilings::Peak& peak : best.peaks) {
    for (const Ceilings::Peak& candidate : other.peaks) {
      if (candidate.dtype == peak.dtype) {
        peak.flops_per_s = std::max(peak.flops_per_s, candidate.flops_per_s);
      }
    }
  }
  return best;
}

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

}  // namespace lora_bench
