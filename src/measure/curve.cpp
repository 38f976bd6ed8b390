#include "measure/curve.h"

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

}  // namespace lora_bench
