#include "run/profile.h"

#include <fmt/format.h>

#include "core/error.h"
#include "device/profiler_range.h"
#include "measure/operand_sets.h"
#include "run/describe.h"
#include "run/select.h"
#include "run/target.h"

namespace lora_bench {
namespace {

// "" when it was launched, else why not.
std::string launch_in_range(const Case& spec, const Selected& selected, Targets& targets) {
  if (!selected.backend) {
    return selected.why_not_here;
  }
  const Backend& backend = *selected.backend;
  const Problem problem = make_problem(spec, draw_batch(spec), draw_adapters(spec));
  const Support support = backend.supports(problem, targets.facts(backend.space()));
  if (!support.yes) {
    return support.why_not;
  }
  const std::shared_ptr<Memory> memory = targets.memory(backend.space());
  const Tensors tensors = draw_tensors(problem, Fill::kTiming, spec.seed);
  OperandSets sets(*memory, problem, tensors, CacheMode::kCold, 2,
                   backend.workspace_bytes(problem));
  backend.launch(problem, sets.operands(0), {});
  memory->synchronize();
  const ProfilerRange range;
  backend.launch(problem, sets.operands(1), {});
  memory->synchronize();
  return "";
}

}  // namespace

std::string profile(const RunRequest& request) {
  Targets targets;
  std::string told;
  bool any = false;
  for (const PlannedRow& row : plan_rows(request)) {
    const std::string why_not = launch_in_range(*row.spec, select_backend(row.spelling), targets);
    any = any || why_not.empty();
    told += fmt::format("{} {} {}: {}\n", row.spec->scenario, row.spec->id, row.backend,
                        why_not.empty() ? "launched once in the range" : why_not);
  }
  if (!any) {
    throw UsageError("nothing to profile:\n" + told);
  }
  std::string command = "ncu --target-processes all --nvtx --nvtx-include lora-bench/";
  for (const std::string& word : request.argv) {
    command += " " + shell_quoted(word);
  }
  return told + command + "\n";
}

}  // namespace lora_bench
