#pragma once

#include <string>

#include "run/run.h"

namespace lora_bench {

// For a profiler: launches each chosen row that its backend can do over sets of operands in turn,
// as a measurement does, then once more, bare and over operands that no cache holds any more, in a
// ProfilerRange. Nothing is proved or timed.
// Returns what was launched and the command line of ncu that looks at it. Throws UsageError when
// nothing can be launched.
[[nodiscard]] std::string profile(const RunRequest& request);

}  // namespace lora_bench
