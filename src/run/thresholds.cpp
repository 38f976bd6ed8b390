#include "run/thresholds.h"

#include <fmt/format.h>

#include <optional>

#include "core/error.h"

namespace lora_bench {
namespace {

const char* named_threshold(const Thresholds& thresholds) {
  if (thresholds.max_floor_ratio) {
    return "max_floor_ratio";
  }
  if (thresholds.max_time_us) {
    return "max_time_us";
  }
  if (thresholds.min_tokens_per_s) {
    return "min_tokens_per_s";
  }
  return thresholds.max_tax_pct ? "max_tax_pct" : nullptr;
}

}  // namespace

Thresholds thresholds_of(const Case& spec, const Thresholds& asked) {
  Thresholds thresholds = spec.thresholds;
  const auto take = [](std::optional<double>& to, const std::optional<double>& value) {
    if (value) {
      to = value;
    }
  };
  take(thresholds.max_floor_ratio, asked.max_floor_ratio);
  take(thresholds.max_time_us, asked.max_time_us);
  take(thresholds.max_regression, asked.max_regression);
  take(thresholds.min_tokens_per_s, asked.min_tokens_per_s);
  take(thresholds.max_tax_pct, asked.max_tax_pct);
  return thresholds;
}

void refuse_unjudged(const RunRequest& request, const std::vector<PlannedRow>& planned) {
  for (const PlannedRow& row : planned) {
    const Thresholds thresholds = thresholds_of(*row.spec, request.thresholds);
    if (thresholds.max_tax_pct && row.spec->op != Op::kLayer) {
      throw UsageError(fmt::format(
          "threshold max_tax_pct would not be judged: case {} is no layer, so has no tax",
          row.spec->id));
    }
    const char* threshold = named_threshold(thresholds);
    if (threshold == nullptr || (request.timing && row.spec->measure.enabled)) {
      continue;
    }
    const bool asked = named_threshold(request.thresholds) != nullptr;
    throw UsageError(fmt::format(
        "threshold {} of {} would not be judged: nothing is timed with {}; leave that out, or {}",
        threshold, asked ? "the command line" : "case " + row.spec->id,
        request.timing ? "measure: false" : "--no-time",
        asked ? "the threshold" : "prove alone with `lora-bench verify`"));
  }
}

}  // namespace lora_bench
