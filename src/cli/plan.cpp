#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/invocation.h"
#include "cli/selection.h"
#include "cli/terminal.h"
#include "core/units.h"
#include "measure/measure.h"
#include "run/describe.h"
#include "run/select.h"
#include "run/target.h"
#include "workload/tensors.h"

namespace lora_bench {
namespace {

// What a row costs beside its timing: drawing data twice, the launch, the oracle. A rough figure
// (bytes at 0.2 GB/s), enough to tell seconds from hours.
constexpr double kProofBytesPerSecond = 0.2e9;

double seconds_for(const Case& spec, const Problem& problem, bool timing) {
  const double proof = static_cast<double>(tensor_bytes(problem)) / kProofBytesPerSecond;
  const double timed = timing ? (spec.measure.warmup_ms + 2 * spec.measure.min_time_ms) * 1e-3 : 0;
  return proof + timed;
}

struct Totals {
  double seconds = 0;
  std::int64_t largest_bytes = 0;
};

std::string plan_line(const PlannedRow& planned, Targets& targets, Totals& totals) {
  const Case& spec = *planned.spec;
  const Problem problem = make_problem(spec, draw_batch(spec), draw_adapters(spec));
  const Selected selected = select_backend(planned.backend);
  const Work work = count_work(problem);
  std::string floor = "-";
  std::string note = selected.why_not_here;
  std::int64_t memory = tensor_bytes(problem);
  if (selected.backend) {
    const Space space = selected.backend->space();
    const DeviceFacts& facts = targets.facts(space);
    floor = fmt::format(
        "{:.2f}",
        floor_of(work, problem, spec.measure.cache, targets.ceilings(space)).seconds * 1e6);
    memory = std::max(memory, measurement_bytes(problem, spec.measure.cache, facts.cache_bytes));
    const Support support = selected.backend->supports(problem, facts);
    note = support.why_not;
    totals.seconds += support.yes ? seconds_for(spec, problem, spec.measure.enabled) : 0;
  }
  totals.largest_bytes = std::max(totals.largest_bytes, memory);
  return fmt::format("{:<40} {:<10} {:>7} {:>6} {:>5} {:>10} {:>10} {:>10} {:>10}{}\n", spec.id,
                     planned.backend, problem.tokens, problem.plan.active(),
                     problem.rank.empty() ? 0 : describe_case(spec, problem, "").rank,
                     format_bytes(static_cast<double>(work.bytes)),
                     fmt::format("{:.3g}", static_cast<double>(work.flops)), floor,
                     format_bytes(static_cast<double>(memory)),
                     note.empty() ? "" : "  SKIPPED: " + note);
}

ExitCode execute(const Selection& selection) {
  const RunRequest request = request_for(selection);
  const std::vector<PlannedRow> planned = plan_rows(request);
  Targets targets;
  Totals totals;
  std::string text =
      fmt::format("{:<40} {:<10} {:>7} {:>6} {:>5} {:>10} {:>10} {:>10} {:>10}\n", "case",
                  "backend", "tokens", "active", "rank", "bytes", "flops", "floor_us", "memory");
  for (const PlannedRow& row : planned) {
    text += plan_line(row, targets, totals);
  }
  text += fmt::format("{} rows, about {}, at most {} of memory at a time\n", planned.size(),
                      format_seconds(totals.seconds),
                      format_bytes(static_cast<double>(totals.largest_bytes)));
  print_result(text);
  return ExitCode::kPass;
}

}  // namespace

void add_plan(CLI::App& app, Invocation& invocation) {
  CLI::App* sub = app.add_subcommand(
      "plan", "print the cases of scenarios without running them: sizes, floor, memory, time");
  const auto selection = std::make_shared<Selection>();
  add_selection(*sub, *selection, true);
  sub->callback([selection, &invocation] {
    invocation.action = [selection] { return execute(*selection); };
  });
}

}  // namespace lora_bench
