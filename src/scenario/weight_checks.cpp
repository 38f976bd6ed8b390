#include <fmt/format.h>

#include "scenario/checks.h"

namespace lora_bench {

void check_weights(const Case& spec, const CaseChecker& checker) {
  const WeightsSpec& weights = spec.weights;
  if (!weights.dtype && weights.scale != WeightsScale::kNone) {
    checker.fail("weights.scale", {"weights.dtype"}, "scales of weights that have none",
                 "weights.dtype: e4m3 or e5m2");
  }
  if (weights.dtype && spec.adapters.dtype) {
    checker.fail("weights.dtype", {"adapters.dtype"},
                 fmt::format("'weights.dtype' is {} and 'adapters.dtype' {}", name(*weights.dtype),
                             name(*spec.adapters.dtype)),
                 "one of both");
  }
  if (weights.scale != WeightsScale::kBlock && !weights.block.empty()) {
    checker.fail("weights.block", {"weights.scale"}, "a block of scales that are not by blocks",
                 "weights.scale: block");
  } else if (weights.scale == WeightsScale::kBlock && weights.block.size() != 2) {
    checker.fail("weights.block", {"weights.scale"},
                 fmt::format("'weights.block' has {} numbers", weights.block.size()),
                 "two: rows and columns");
  }
}

}  // namespace lora_bench
