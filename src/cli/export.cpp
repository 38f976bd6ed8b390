#include "run/export.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/invocation.h"
#include "cli/selection.h"
#include "cli/supervised.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "run/select.h"
#include "run/target.h"
#include "run/watch.h"

namespace lora_bench {
namespace {

struct ExportCommand {
  Selection selection;
  std::string folder;
};

// "anchors/decode1-qkv-r16" is the case decode1-qkv-r16 of anchors, unless it is a scenario itself.
Selection with_case_split(Selection selection) {
  const std::string& named = selection.files.front();
  const std::size_t slash = named.rfind('/');
  if (selection.files.size() > 1 || !selection.cases.empty() || slash == std::string::npos) {
    return selection;
  }
  try {
    static_cast<void>(find_scenario(named));
  } catch (const UsageError&) {
    selection.cases = {named.substr(slash + 1)};
    selection.files = {named.substr(0, slash)};
  }
  return selection;
}

ExitCode execute(const ExportCommand& command, const Invocation& invocation) {
  const RunRequest request = request_for(with_case_split(command.selection));
  if (const auto code = supervised(request, invocation.argv)) {
    return *code;
  }
  const std::vector<PlannedRow> planned = plan_rows(request);
  if (planned.size() > 1) {
    throw UsageError(fmt::format(
        "export writes one case of one backend, here are {} (the first: {} on {}); choose with "
        "SCENARIO/CASE and --backends NAME",
        planned.size(), planned.front().spec->id, planned.front().backend));
  }
  const PlannedRow& row = planned.front();
  const Selected selected = select_backend(row.spelling);
  if (!selected.backend) {
    throw UsageError(
        fmt::format("backend {} cannot run here: {}", row.backend, selected.why_not_here));
  }
  Targets targets;
  const Space space = selected.backend->space();
  const auto backend = watched(selected.backend, std::make_shared<Pulse>());
  const ExportedFiles files = export_case({.spec = *row.spec,
                                           .backend = *backend,
                                           .memory = *targets.memory(space),
                                           .facts = targets.facts(space),
                                           .folder = command.folder});
  print_result(fmt::format("{}\n{}\n", files.tensors.string(), files.metadata.string()));
  return ExitCode::kPass;
}

}  // namespace

void add_export(CLI::App& app, Invocation& invocation) {
  CLI::App* sub = app.add_subcommand(
      "export",
      "write one case, SCENARIO/CASE, as safetensors: inputs, plan, output, expected values");
  const auto command = std::make_shared<ExportCommand>();
  add_selection(*sub, command->selection, true);
  sub->add_option("--to", command->folder, "folder to write into; made if missing")
      ->required()
      ->type_name("DIR");
  sub->callback([command, &invocation] {
    invocation.action = [command, &invocation] { return execute(*command, invocation); };
  });
}

}  // namespace lora_bench
