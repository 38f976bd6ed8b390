#pragma once

#include <string>
#include <vector>

#include "device/facts.h"
#include "report/row.h"
#include "scenario/scenario.h"

namespace lora_bench {

// First line of a results file: which tool on which machine, called how. `device` is where the
// first backend of the run works.
[[nodiscard]] Context make_context(const DeviceFacts& device,
                                   const std::vector<Scenario>& scenarios,
                                   const std::vector<std::string>& argv);

// Why a run cannot continue these results; "" = it can: same scenarios, machine and build.
[[nodiscard]] std::string why_not_resumable(const Context& stored, const Context& current);

// The linker's build id of the running program, which another content changes; "" where it has
// none.
[[nodiscard]] std::string executable_id();

}  // namespace lora_bench
