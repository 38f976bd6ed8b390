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

void check_activations(const Case& spec, const CaseChecker& checker) {
  const ActivationsSpec& activations = spec.activations;
  if (!activations.dtype && activations.scale != ActivationsScale::kNone) {
    checker.fail("activations.scale", {"activations.dtype"}, "scales of activations that have none",
                 "activations.dtype: e4m3 or e5m2");
  }
  if (activations.scale != ActivationsScale::kBlock && activations.group != 0) {
    checker.fail("activations.group", {"activations.scale"},
                 "a group of scales that are not by blocks", "activations.scale: block");
  }
  if (!activations.dtype || !has_products(spec.op)) {
    return;
  }
  if (!spec.weights.dtype) {
    checker.fail(
        "activations.dtype", {},
        fmt::format("'activations.dtype' is {} beside weights of {}", name(*activations.dtype),
                    name(spec.adapters.dtype.value_or(spec.dtype))),
        "weights.dtype: e4m3 or e5m2");
  }
  // A layer says by itself that it takes no such field.
  if (spec.op != Op::kLinear && spec.op != Op::kShrink && spec.op != Op::kExpand &&
      !has_base(spec.op)) {
    checker.fail("activations.dtype", {"op"},
                 fmt::format("'activations.dtype' with op {}", name(spec.op)),
                 "op linear, shrink or expand");
  }
  if (spec.op == Op::kExpand && checker.settings().has("intermediate")) {
    checker.fail(
        "intermediate", {},
        fmt::format("'intermediate' beside 'activations.dtype' {}, which is the storage of "
                    "the h of op expand",
                    name(*activations.dtype)),
        "one of both");
  }
}

void check_quantised_h(const Case& spec, const CaseChecker& checker) {
  const std::string is = fmt::format("'intermediate' is {}", name(spec.intermediate));
  if (spec.op != Op::kLinear) {
    checker.fail("intermediate", {"op"}, fmt::format("{} with op {}", is, name(spec.op)),
                 "op linear");
  } else if (!spec.activations.dtype) {
    checker.fail("intermediate", {"activations.dtype"}, is + ", but x has not eight bits",
                 "activations.dtype: e4m3 or e5m2");
  } else if (spec.activations.scale == ActivationsScale::kTensor) {
    checker.fail("intermediate", {"activations.scale"},
                 is + " with one scale: no y could be made before all of h is",
                 "activations.scale: token or block");
  }
}

void check_quantiser(const Case& spec, const CaseChecker& checker) {
  if (spec.op != Op::kQuantise || spec.quantiser.scales == ScalesOfX::kMade) {
    return;
  }
  for (const char* path :
       {"quantiser.least_amax", "quantiser.least_scale", "quantiser.power_of_two"}) {
    if (checker.settings().has(path)) {
      checker.fail(path, {"quantiser.scales"},
                   fmt::format("'{}' where scales are given: it says how they are made", path),
                   "quantiser.scales: made");
    }
  }
}

}  // namespace lora_bench
