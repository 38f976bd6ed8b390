#pragma once

#include <string>

#include "scenario/case.h"

namespace lora_bench {

// The case as a scenario file of its own: read again it is the same case, under the scenario's
// name. What has its default value is left out, as are tags. A trace is named by its file, which
// must lie beside.
[[nodiscard]] std::string scenario_text(const Case& spec);

}  // namespace lora_bench
