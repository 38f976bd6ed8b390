#include "run/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "core/error.h"
#include "device/profiler_range.h"
#include "measure/operand_sets.h"
#include "measure/rotation.h"
#include "run/describe.h"
#include "run/select.h"
#include "run/target.h"

namespace lora_bench {
namespace {

constexpr double kWarmSeconds = 0.1;

// Launches one set after the other until clocks, code and address translation are as they are in a
// measurement. The turn is then at the first.
void warm_up(const Backend& backend, const Problem& problem, const OperandSets& sets,
             Memory& memory) {
  const auto start = std::chrono::steady_clock::now();
  do {
    for (std::int64_t set = 0; set < sets.count(); ++set) {
      backend.launch(problem, sets.operands(set), {});
    }
    memory.synchronize();
  } while (std::chrono::steady_clock::now() - start < std::chrono::duration<double>(kWarmSeconds));
}

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
  const std::int64_t cache_bytes = targets.facts(backend.space()).cache_bytes;
  const OperandSets sets(
      *memory, problem, tensors, CacheMode::kCold,
      std::max<std::int64_t>(
          affordable_sets(problem, backend, CacheMode::kCold, cache_bytes, *memory), 2),
      backend.workspace_bytes(problem));
  warm_up(backend, problem, sets, *memory);
  const ProfilerRange range(spec.id + ' ' + std::string(backend.name()));
  backend.launch(problem, sets.operands(0), {});
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
  std::string command =
      "ncu --target-processes all --nvtx --nvtx-include lora-bench/ --cache-control none "
      "--clock-control none";
  for (const std::string& word : request.argv) {
    command += " " + shell_quoted(word);
  }
  return told + command + "\n";
}

}  // namespace lora_bench
