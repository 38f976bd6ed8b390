#pragma once

#include <map>
#include <string>
#include <vector>

#include "device/facts.h"
#include "report/row.h"
#include "run/run.h"
#include "run/select.h"
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

// Stored rows of the file that the request resumes, refused (UsageError) unless they are of this
// very run: same machine, build and scenarios in every context line, each row once, what it says of
// its case as it is planned, and no figure that this tool would not have written. Empty where there
// is nothing to resume.
[[nodiscard]] std::vector<Row> resumed_rows(const RunRequest& request, const Context& context,
                                            const std::map<std::string, Selected>& selected,
                                            const std::vector<PlannedRow>& planned);

}  // namespace lora_bench
