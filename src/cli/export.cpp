#include "run/export.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "cli/invocation.h"
#include "cli/selection.h"
#include "cli/supervised.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "run/interrupt.h"
#include "run/select.h"
#include "run/target.h"
#include "run/watch.h"

namespace lora_bench {
namespace {

struct ExportCommand {
  Selection selection;
  std::string folder;
  bool scales_as_written = false;
};

bool names_scenario(const std::string& text) {
  try {
    static_cast<void>(find_scenario(text));
    return true;
  } catch (const UsageError&) {
    return false;
  }
}

// "anchors/decode1-qkv-r16" is the case decode1-qkv-r16 of anchors, unless it is a scenario itself.
Selection with_cases_split(const Selection& selection) {
  Selection split = selection;
  split.files.clear();
  for (const std::string& named : selection.files) {
    const std::size_t slash = named.rfind('/');
    if (!selection.cases.empty() || slash == std::string::npos || names_scenario(named)) {
      return selection;
    }
    split.cases.push_back(named.substr(slash + 1));
    const std::string file = named.substr(0, slash);
    if (std::find(split.files.begin(), split.files.end(), file) == split.files.end()) {
      split.files.push_back(file);
    }
  }
  return split;
}

// Files are named after their cases, and rows after the backend that made the output.
void refuse_mixture(const std::vector<PlannedRow>& planned) {
  for (const PlannedRow& row : planned) {
    if (row.backend != planned.front().backend ||
        row.spec->scenario != planned.front().spec->scenario) {
      throw UsageError(fmt::format(
          "export writes cases of one scenario and one backend, here are {} of {} on {} and {} of "
          "{} on {}; choose with SCENARIO/CASE, --case and --backends NAME",
          planned.front().spec->id, planned.front().spec->scenario, planned.front().backend,
          row.spec->id, row.spec->scenario, row.backend));
    }
  }
  std::vector<std::string> ids;
  ids.reserve(planned.size());
  for (const PlannedRow& row : planned) {
    ids.push_back(row.spec->id);
  }
  refuse_shared_files(ids);
}

ExitCode execute(const ExportCommand& command, const Invocation& invocation) {
  const RunRequest request = request_for(with_cases_split(command.selection));
  if (const auto code = supervised(request, invocation.argv)) {
    return *code;
  }
  const std::vector<PlannedRow> planned = plan_rows(request);
  refuse_mixture(planned);
  const Selected selected = select_backend(planned.front().spelling);
  if (!selected.backend) {
    throw EnvironmentError(fmt::format(
        "backend {} cannot run here: {}; choose another with --backends (see `list backends`)",
        planned.front().backend, selected.why_not_here));
  }
  Targets targets;
  const Space space = selected.backend->space();
  const auto backend = watched(selected.backend, std::make_shared<Pulse>());
  int replaced = 0;
  std::vector<std::string> missing;
  for (const PlannedRow& row : planned) {
    if (interrupted()) {
      missing.push_back(row.spec->id);
      continue;
    }
    const ExportedFiles files = export_case({.spec = *row.spec,
                                             .backend = *backend,
                                             .memory = *targets.memory(space),
                                             .facts = targets.facts(space),
                                             .folder = command.folder,
                                             .scales_as_written = command.scales_as_written});
    print_result(fmt::format("{}\n{}\n", files.tensors.string(), files.metadata.string()));
    replaced += files.replaced;
  }
  if (replaced > 0) {
    print_note(fmt::format("replaced {} file{} in {}", replaced, replaced == 1 ? "" : "s",
                           command.folder));
  }
  if (!missing.empty()) {
    print_note(fmt::format("interrupted; {} of {} cases are missing in {}: {}", missing.size(),
                           planned.size(), command.folder, fmt::join(missing, ", ")));
    return ExitCode::kInconclusive;
  }
  return ExitCode::kPass;
}

}  // namespace

void add_export(CLI::App& app, Invocation& invocation) {
  CLI::App* sub = app.add_subcommand(
      "export",
      "write cases, SCENARIO or SCENARIO/CASE, as safetensors: inputs, plan, output, expected");
  const auto command = std::make_shared<ExportCommand>();
  add_selection(*sub, command->selection, true);
  sub->add_option("--to", command->folder, "folder to write into; made if missing")
      ->required()
      ->type_name("DIR");
  sub->add_flag("--scales-as-written", command->scales_as_written,
                "scales as the scenario has them; without it each adapter has one of its own");
  sub->callback([command, &invocation] {
    invocation.action = [command, &invocation] { return execute(*command, invocation); };
  });
}

}  // namespace lora_bench
