#pragma once

#include <string>
#include <vector>

#include "ops/auto_choice.h"

namespace lora_bench {

// What backend `auto` launches on the device and why, a sentence a line, for operands that begin on
// 16 bytes as those of a run do.
[[nodiscard]] std::vector<std::string> explain_auto(const AutoDevice& device,
                                                    const Problem& problem);

// The same launch as a tuning says it: with it in the place of problem.tuning that is what is
// launched again. Says nothing where nothing is launched.
[[nodiscard]] Tuning tuning_of_choice(const AutoDevice& device, const Problem& problem);

}  // namespace lora_bench
