#pragma once

#include <string>
#include <vector>

#include "scenario/scenario.h"

namespace lora_bench {

// The text of a models.yaml; throws UsageError with what is wrong in it.
[[nodiscard]] std::vector<ModelLayer> parse_models(const std::string& text,
                                                   const std::string& file);

}  // namespace lora_bench
