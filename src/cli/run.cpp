#include "run/run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <sstream>

#include "cli/again.h"
#include "cli/invocation.h"
#include "cli/selection.h"
#include "cli/supervised.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "core/units.h"
#include "report/model_steps.h"
#include "run/profile.h"
#include "run/worker.h"

namespace lora_bench {
namespace {

constexpr std::size_t kFailuresUnderTable = 3;

struct RunOptions {
  Selection selection;
  std::vector<std::string> out;
  std::vector<std::string> thresholds;
  std::vector<std::string> columns;
  std::string resume, samples_to, rank_by;
  bool relations = false, no_time = false, profile = false, shuffle = false, quiet = false;
  bool isolate = false, serve_rows = false, touch = false, counters = false, watch = false;
  std::int64_t repeat = 1;
};

// "max_floor_ratio=R, max_time_us=T or max_tax_pct=P": all that a run judges.
std::string threshold_usage() {
  std::string usage;
  for (const ThresholdField& field : kThresholdFields) {
    const bool last = &field == &kThresholdFields.back();
    usage += usage.empty() ? field.usage : fmt::format("{}{}", last ? " or " : ", ", field.usage);
  }
  return usage;
}

void set_threshold(Thresholds& thresholds, const std::string& text) {
  const std::size_t equals = std::min(text.find('='), text.size());
  const std::string key = text.substr(0, equals);
  Diagnostic diagnostic;
  diagnostic.where.file = "--threshold " + text;
  std::vector<std::string> names;
  for (const ThresholdField& field : kThresholdFields) {
    names.emplace_back(field.name);
    if (field.name != key) {
      continue;
    }
    const std::string given = text.substr(std::min(equals + 1, text.size()));
    const auto value = real_in(given);
    if (value && *value > 0) {
      thresholds.*field.value = value;
      return;
    }
    diagnostic.what = given.empty() ? fmt::format("'{}' has no value", key)
                                    : fmt::format("'{}' is no threshold", given);
    diagnostic.allowed = fmt::format("a number above 0, as in {}=1.5", key);
    throw UsageError({diagnostic});
  }
  diagnostic.what = fmt::format("unknown threshold '{}'", key);
  diagnostic.allowed = threshold_usage();
  diagnostic.suggestion = nearest(key, names);
  throw UsageError({diagnostic});
}

// What speaks of proofs, times and stored rows, of which --profile has none.
void refuse_beside_profile(const CLI::App& command) {
  std::vector<std::string> given;
  for (const char* option :
       {"--out", "--resume", "--samples-to", "--threshold", "--columns", "--rank-by", "--relations",
        "--no-time", "--isolate", "--touch", "--counters"}) {
    if (command.count(option) > 0) {
      given.emplace_back(option);
    }
  }
  if (!given.empty()) {
    throw UsageError(fmt::format("--profile proves, times and stores nothing: leave out {}",
                                 fmt::join(given, ", ")));
  }
}

RunRequest request_of(const RunOptions& options, const Invocation& invocation) {
  Selection selection = options.selection;
  selection.timed = !options.no_time;
  RunRequest request = request_for(selection);
  request.relations = options.relations;
  request.timing = !options.no_time;
  request.touch = options.touch;
  request.shuffle = options.shuffle;
  request.repeat = options.repeat;
  request.isolate = options.isolate;
  request.counters = options.counters;
  request.quiet = options.quiet;
  request.argv = invocation.argv;
  request.out.assign(options.out.begin(), options.out.end());
  request.columns = options.columns;
  request.rank_by = options.rank_by;
  if (!options.resume.empty()) {
    request.resume = options.resume;
  }
  if (!options.samples_to.empty()) {
    request.samples_to = options.samples_to;
  }
  for (const std::string& text : options.thresholds) {
    set_threshold(request.thresholds, text);
  }
  return request;
}

ExitCode work(const RunRequest& request, const RunOptions& options, const Invocation& invocation) {
  const std::vector<PlannedRow> planned = plan_rows(request);
  if (options.profile) {
    const ProfileReport report = profile(request, planned);
    print_result(report.text);
    print_notes_on_tuning(request, planned);
    if (report.interrupted) {
      print_note("interrupted; the rows above are those that were launched");
    }
    return report.exit;
  }
  refuse_unjudged(request, planned);
  TableStyle style = table_style(invocation);
  style.columns = options.columns;
  style.rank_by = options.rank_by;
  std::ostringstream text;
  const std::unique_ptr<Sink> table = make_table_sink(text, style);  // refuses unknown columns now
  std::string notes = notes_on_tuning(request, planned);
  notes += note_on_replaced(request.out);  // before the run makes the files
  if (std::error_code error; request.resume && !std::filesystem::exists(*request.resume, error)) {
    notes += fmt::format("{} is new: nothing to resume\n", request.resume->string());
  }
  const RunReport report = run(request, planned);
  table->begin(report.context);
  for (const Row& row : report.rows) {
    table->row(row);
  }
  table->finish();
  const std::string steps =
      render_model_steps(model_steps(report.rows, report.rows, layers_of_models()), false);
  const std::string failures = failure_report(report.rows, kFailuresUnderTable);
  print_result(options.watch ? failures + text.str() + steps : text.str() + steps + failures);
  print_note(notes + run_summary(report));
  return report.exit;
}

ExitCode execute(const RunOptions& options, const Invocation& invocation) {
  const RunRequest request = request_of(options, invocation);
  if (options.serve_rows) {
    return serve_rows(request);
  }
  if (options.watch) {
    refuse_unwatchable(request);
  }
  const auto start = [&] { return supervised(request, invocation.argv, Makes::kRows); };
  if (const auto code = options.watch ? start_at_changes(request, start) : start()) {
    return *code;
  }
  const auto turn = [&] { return work(request, options, invocation); };
  return options.watch ? run_at_changes(request, turn) : turn();
}

}  // namespace

void add_run(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand("run", "prove and time every case of scenarios");
  const auto options = std::make_shared<RunOptions>();
  add_selection(*command, options->selection, true);
  command
      ->add_option("--out", options->out,
                   "also write FILE; by its extension .jsonl, .csv, .md or .txt; may be repeated")
      ->take_all()
      ->allow_extra_args(false);
  command->add_option("--resume", options->resume,
                      "continue FILE.jsonl: rows it holds are not run again");
  command->add_option("--samples-to", options->samples_to, "write every time sample to FILE.csv");
  command
      ->add_option("--threshold", options->thresholds,
                   "max_floor_ratio=R, max_time_us=T, min_tokens_per_s=N or, of layers, "
                   "max_tax_pct=P; replaces the scenario's")
      ->take_all()
      ->allow_extra_args(false);
  command->add_option("--columns", options->columns, "columns of the table (see `list metrics`)")
      ->delimiter(',')
      ->allow_extra_args(false);
  add_rank_by(*command, options->rank_by, kRanksRows);
  command->add_option("--repeat", options->repeat, "run the whole list so many times")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_flag("--shuffle", options->shuffle, "run rows in an order drawn from the seed");
  command->add_flag("--relations", options->relations, "prove level 3, the relations, as well");
  command->add_flag("--profile", options->profile,
                    "launch each row once in an NVTX range, for ncu; proves and times nothing");
  command->add_flag("--counters", options->counters,
                    "count bytes from memory, L2 hits and SM cycles of one launch, by CUPTI");
  CLI::Option* no_time = command->add_flag("--no-time", options->no_time, "prove only");
  command
      ->add_flag("--touch", options->touch,
                 "time beside each row of an op on a GPU a kernel that only touches its operands")
      ->excludes(no_time);
  command->add_flag("--isolate", options->isolate,
                    "each backend in a process of its own: a crash costs one row");
  command->add_flag("--watch", options->watch,
                    "again whenever the file of a plugin changes, failures first, until Ctrl-C");
  command->add_flag("--serve-rows", options->serve_rows)->group("");  // run/worker.h
  command->add_flag("--quiet", options->quiet, "no progress on stderr");
  command->callback([options, command, &invocation] {
    invocation.action = [options, command, &invocation] {
      if (options->profile) {
        refuse_beside_profile(*command);
      }
      return execute(*options, invocation);
    };
  });
}

}  // namespace lora_bench
