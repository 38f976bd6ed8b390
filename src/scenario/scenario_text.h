#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scenario/case.h"

namespace lora_bench {

// The case as a scenario file of its own: read again it is the same case, under the scenario's
// name. What has its default value is left out, as are tags. A trace is named by its file, which
// must lie beside.
[[nodiscard]] std::string scenario_text(const Case& spec);

// FNV-1a over what the cases are, whatever their file looks like.
[[nodiscard]] std::uint64_t content_hash(const std::vector<Case>& cases);

}  // namespace lora_bench
