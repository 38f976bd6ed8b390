#include "run/thresholds.h"

#include <fmt/format.h>

#include "core/error.h"

namespace lora_bench {
namespace {

const char* named_threshold(const Thresholds& thresholds) {
  for (const ThresholdField& field : kThresholdFields) {
    if (thresholds.*field.value) {
      return field.name;
    }
  }
  return nullptr;
}

}  // namespace

Thresholds thresholds_of(const Case& spec, const Thresholds& asked) {
  Thresholds thresholds = spec.thresholds;
  for (const ThresholdField& field : kThresholdFields) {
    if (asked.*field.value) {
      thresholds.*field.value = asked.*field.value;
    }
  }
  if (asked.max_regression) {
    thresholds.max_regression = asked.max_regression;
  }
  return thresholds;
}

void refuse_unjudged(const RunRequest& request, const std::vector<PlannedRow>& planned) {
  for (const PlannedRow& row : planned) {
    const Thresholds thresholds = thresholds_of(*row.spec, request.thresholds);
    if (thresholds.max_tax_pct && !has_base(row.spec->op)) {
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
