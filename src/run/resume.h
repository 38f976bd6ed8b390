#pragma once

#include <map>
#include <string>
#include <vector>

#include "run/run.h"
#include "run/select.h"

namespace lora_bench {

// Stored rows of the file that the request resumes, refused (UsageError) unless they are of this
// very run: same machine, build and scenarios in every context line, each row once, what it says of
// its case as it is planned, and no figure that this tool would not have written. Empty where there
// is nothing to resume.
[[nodiscard]] std::vector<Row> resumed_rows(const RunRequest& request, const Context& context,
                                            const std::map<std::string, Selected>& selected,
                                            const std::vector<PlannedRow>& planned);

}  // namespace lora_bench
