#pragma once

#include "scenario/case.h"

namespace lora_bench {

// Those of the case, each replaced by the one of the command line that is set.
[[nodiscard]] Thresholds thresholds_of(const Case& spec, const Thresholds& asked);

}  // namespace lora_bench
