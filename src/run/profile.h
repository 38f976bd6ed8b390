#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/status.h"
#include "ops/backend.h"
#include "run/run.h"
#include "run/target.h"
#include "scenario/case.h"

namespace lora_bench {

struct ProfileReport {
  std::string text;  // a line a row, then the command line of ncu that looks at what was launched
  ExitCode exit = ExitCode::kPass;
  bool interrupted = false;
};

// For a profiler: launches each planned row that its backend can do over sets of operands in turn,
// as a measurement does, then once more, bare and over operands that no cache holds any more, in a
// ProfilerRange. Nothing is proved or timed. A backend on the host is not launched, one that hangs
// ends it.
// Throws UsageError when nothing can be launched.
[[nodiscard]] ProfileReport profile(const RunRequest& request,
                                    const std::vector<PlannedRow>& planned);

// One row of it: PASSED when it was launched, else SKIPPED, HUNG or ERROR and why.
struct ProfiledRow {
  Status status = Status::kPassed;
  std::string told;
  bool interrupted = false;
};
[[nodiscard]] ProfiledRow profile_row(const Case& spec, std::shared_ptr<const Backend> backend,
                                      Targets& targets);

}  // namespace lora_bench
