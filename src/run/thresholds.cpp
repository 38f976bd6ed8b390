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
  return thresholds.min_tokens_per_s ? "min_tokens_per_s" : nullptr;
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
  return thresholds;
}

void refuse_unjudged(const RunRequest& request, const std::vector<PlannedRow>& planned) {
  for (const PlannedRow& row : planned) {
    const char* threshold = named_threshold(thresholds_of(*row.spec, request.thresholds));
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
