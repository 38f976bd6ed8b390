#include "run/thresholds.h"

#include <optional>

namespace lora_bench {

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

}  // namespace lora_bench
