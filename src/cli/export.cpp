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
#include "run/select.h"
#include "run/target.h"
#include "run/watch.h"

namespace lora_bench {
namespace {

struct ExportCommand {
  Selection selection;
  std::string folder;
  bool scales_as_written = false;
  std::vector<std::string> forms;
};

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
void refuse_before_writing(const std::vector<PlannedRow>& planned) {
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
    refuse_unexported(*row.spec);  // before the files of those before it are written
  }
  refuse_shared_files(ids);
}

// What the thread works on that may be left behind in a kernel that hangs.
struct ExportWork {
  ExportWork(const Case& of, std::shared_ptr<const Backend> by, std::shared_ptr<Memory> in,
             const DeviceFacts& of_device, const ExportCommand& command)
      : spec(of),
        backend(std::move(by)),
        memory(std::move(in)),
        facts(of_device),
        folder(command.folder),
        scales_as_written(command.scales_as_written) {
    for (const std::string& form : command.forms) {
      forms.push_back(*named<Form>(form));
    }
  }

  Case spec;
  std::shared_ptr<const Backend> backend;
  std::shared_ptr<Memory> memory;
  DeviceFacts facts;
  std::filesystem::path folder;
  bool scales_as_written = false;
  std::vector<Form> forms;
  ExportedFiles files;
  std::string why;  // it is not written
};

// PASSED when the files were written; what the backend does is no error of the environment.
Status exported(const std::shared_ptr<ExportWork>& work, const Pulse& pulse) {
  const double most_s = work->spec.verify.timeout_s;
  const auto write = [work] {
    work->files = export_case({.spec = work->spec,
                               .backend = *work->backend,
                               .memory = *work->memory,
                               .facts = work->facts,
                               .folder = work->folder,
                               .scales_as_written = work->scales_as_written,
                               .forms = work->forms});
  };
  try {
    if (run_watched(write, pulse, most_s) == Ended::kReturned) {
      return Status::kPassed;
    }
    work->why = fmt::format("did not return within {} s", most_s);
    return Status::kHung;
  } catch (const CaseError& error) {
    work->why = error.what();
    return Status::kError;
  }
}

ExitCode execute(const ExportCommand& command, const Invocation& invocation) {
  const RunRequest request = request_for(with_cases_split(command.selection));
  if (const auto code = supervised(request, invocation.argv, Makes::kOther)) {
    return *code;
  }
  const std::vector<PlannedRow> planned = plan_rows(request);
  refuse_before_writing(planned);
  const Selected selected =
      select_backend(planned.front().spelling, planned.front().spec->verify.timeout_s);
  if (!selected.backend) {
    throw EnvironmentError(fmt::format(
        "backend {} cannot run here: {}; choose another with --backends (see `list backends`)",
        planned.front().backend, selected.why_not_here));
  }
  Targets targets;
  const Space space = selected.backend->space();
  const auto pulse = std::make_shared<Pulse>();
  const auto backend = watched(selected.backend, pulse);
  const auto memory = watched(targets.memory(space), pulse);
  int replaced = 0;
  ExitCode code = ExitCode::kPass;
  std::vector<std::string> missing;
  bool hung = false;
  for (const PlannedRow& row : planned) {
    if (interrupted() || hung) {
      missing.push_back(row.spec->id);
      continue;
    }
    const auto work =
        std::make_shared<ExportWork>(*row.spec, backend, memory, targets.facts(space), command);
    const Status status = exported(work, *pulse);
    if (status == Status::kPassed) {
      print_result(
          fmt::format("{}\n{}\n", work->files.tensors.string(), work->files.metadata.string()));
      replaced += work->files.replaced;
      continue;
    }
    print_note(fmt::format("{} {} on {}: {}", name(status), row.backend, row.spec->id, work->why));
    code = worse(code, exit_code(status));
    hung = status == Status::kHung;
  }
  print_notes_on_tuning(request, planned);
  if (replaced > 0) {
    print_note(fmt::format("replaced {} file{} in {}", replaced, replaced == 1 ? "" : "s",
                           command.folder));
  }
  if (!missing.empty()) {
    print_note(fmt::format("{}; {} of {} cases are missing in {}: {}",
                           hung ? "nothing is launched after that" : "interrupted", missing.size(),
                           planned.size(), command.folder, fmt::join(missing, ", ")));
    return worse(code, ExitCode::kInconclusive);
  }
  return code;
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
  const std::vector<std::string> forms(EnumNames<Form>::kNames.begin(),
                                       EnumNames<Form>::kNames.end());
  sub->add_option(
         "--form", command->forms,
         fmt::format("write the batch in this form of docs/plan.md too: {}; repeat for more",
                     fmt::join(forms, ", ")))
      ->check(CLI::IsMember(forms));
  sub->callback([command, &invocation] {
    invocation.action = [command, &invocation] { return execute(*command, invocation); };
  });
}

}  // namespace lora_bench
