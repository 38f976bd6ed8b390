#include "measure/ceilings.h"

#include <algorithm>

namespace lora_bench {

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

}  // namespace

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

}  // namespace lora_bench
