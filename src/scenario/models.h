#pragma once

#include <map>
#include <string>
#include <vector>

#include "scenario/scenario.h"

namespace lora_bench {

// The text of a models.yaml; throws UsageError with what is wrong in it.
[[nodiscard]] std::vector<ModelLayer> parse_models(const std::string& text,
                                                   const std::string& file);

// The names of the layers of each model of such a text, then those that its `lacks` has: parts of
// the model that are no layer here, so that no sum of its layers is a step.
[[nodiscard]] std::map<std::string, std::vector<std::string>> parse_parts(const std::string& text,
                                                                          const std::string& file);

}  // namespace lora_bench
