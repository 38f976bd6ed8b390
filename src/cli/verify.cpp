#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string_view>

#include "cli/invocation.h"
#include "cli/selection.h"
#include "cli/supervised.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "run/watch.h"
#include "verify/mutants.h"

namespace lora_bench {
namespace {

constexpr std::size_t kFailuresTold = 20;

struct VerifyCommand {
  Selection selection;
  std::vector<std::string> out;
  bool self_test = false, quick = false, isolate = false, buffers_apart = false, quiet = false;
  std::int64_t correct_cases = 1000;
  std::int64_t jobs = 0;
};

std::vector<std::string> shipped_suite() {
  const std::filesystem::path folder = scenario_folder() / "verify";
  std::vector<std::string> files;
  if (std::filesystem::is_directory(folder)) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      if (entry.path().extension() == ".yaml") {
        files.push_back(entry.path().string());
      }
    }
  }
  if (files.empty()) {
    throw UsageError(
        fmt::format("no verification scenarios under {}; name a file, or point "
                    "LORA_BENCH_SCENARIOS at the scenarios folder",
                    folder.string()));
  }
  std::sort(files.begin(), files.end());
  return files;
}

// The self-test has cases of its own: what would be ignored was meant to do something.
void refuse_beside_self_test(const CLI::App& command) {
  std::vector<std::string> given;
  for (const char* option :
       {"scenario", "--set", "--filter", "--case", "--backends", "--tuning", "--max-cases", "--out",
        "--quick", "--isolate", "--jobs", "--buffers-apart"}) {
    if (command.count(option) > 0) {
      given.emplace_back(option == std::string_view("scenario") ? "the scenario" : option);
    }
  }
  if (!given.empty()) {
    throw UsageError(
        fmt::format("--self-test tries the verifier on mutants and cases of its own and takes "
                    "--correct-cases, --seed and --quiet alone: leave out {}",
                    fmt::join(given, ", ")));
  }
}

ExitCode exit_of(const SelfTestReport& report) {
  const bool nothing_wrong = sound(report) || (report.interrupted && report.rows.empty());
  if (!nothing_wrong) {
    return ExitCode::kWrongResult;
  }
  return report.interrupted ? ExitCode::kInconclusive : ExitCode::kPass;
}

ExitCode run_self_test(const VerifyCommand& command) {
  const SelfTestReport report = self_test(
      command.correct_cases, command.selection.seed.value_or(1),
      [&](const std::string& line) {
        if (!command.quiet) {
          print_note(line);
        }
      },
      interrupted);
  std::string text =
      fmt::format("{:<28}  {:<8}  {:<34}  {:<26}  {}\n", "mutant", "caught", "by", "named", "case");
  std::int64_t caught = 0;
  for (const SelfTestRow& row : report.rows) {
    caught += row.caught ? 1 : 0;
    text += fmt::format("{:<28}  {:<8}  {:<34}  {:<26}  {}\n", row.fault, row.caught ? "yes" : "NO",
                        row.level, row.hypothesis, row.case_id);
    if (row.caught && !row.named_right) {
      text += fmt::format("  {}: NAMED WRONGLY, see `lora-bench list mutants`\n", row.fault);
    }
    if (!row.part_needed) {
      text +=
          fmt::format("  {}: CAUGHT WITHOUT the part of the proof that it is to test\n", row.fault);
    }
  }
  for (const std::string& message : report.alarm_messages) {
    text += fmt::format("false alarm: {}\n", message);
  }
  const auto total = static_cast<std::int64_t>(report.rows.size());
  text += fmt::format("{} of {} mutants caught; {} false alarms in {} correct cases\n", caught,
                      total, report.false_alarms, report.correct_cases);
  if (report.skipped > 0) {
    text +=
        fmt::format("{} GPU mutants skipped: no GPU ({})\n", report.skipped, report.why_skipped);
  }
  if (report.interrupted) {
    text += "interrupted: mutants and cases above are those that were tried\n";
  }
  print_result(text);
  return exit_of(report);
}

ExitCode execute(VerifyCommand command, const Invocation& invocation) {
  if (command.self_test) {
    return run_self_test(command);
  }
  if (command.selection.files.empty()) {
    command.selection.files = shipped_suite();
  }
  command.selection.timed = false;
  RunRequest request = request_for(command.selection);
  request.relations = !command.quick;
  request.timing = false;
  request.resumable = false;
  request.all_backends = true;
  request.isolate = command.isolate;
  request.jobs = command.isolate ? 1 : command.jobs;
  request.buffers_apart = command.buffers_apart;
  request.quiet = command.quiet;
  request.argv = invocation.argv;
  request.out.assign(command.out.begin(), command.out.end());
  if (const auto code = supervised(request, invocation.argv, Makes::kRows)) {
    return *code;
  }
  const std::vector<PlannedRow> planned = plan_rows(request);
  const std::string notes = notes_on_tuning(request, planned) + note_on_replaced(request.out);
  const RunReport report = run(request, planned);
  print_result(proof_table(report.rows) + skip_reasons(report.rows) +
               failure_report(report.rows, kFailuresTold));
  print_note(notes + run_summary(report));
  return report.exit;
}

}  // namespace

void add_verify(CLI::App& app, Invocation& invocation) {
  CLI::App* sub = app.add_subcommand(
      "verify", "prove backends at every level; without a file, the shipped suite");
  const auto command = std::make_shared<VerifyCommand>();
  add_selection(*sub, command->selection, false);
  sub->add_option("--out", command->out, "also write FILE (.jsonl, .csv, .md or .txt)")
      ->take_all()
      ->allow_extra_args(false);
  sub->add_flag("--quick", command->quick, "without the relations between launches (level 3)");
  sub->add_flag("--self-test", command->self_test,
                "test the verifier itself: every mutant must be caught, nothing right flagged");
  sub->add_option("--correct-cases", command->correct_cases,
                  "with --self-test: correct cases that must raise no alarm")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  sub->add_flag("--isolate", command->isolate,
                "each backend in a process of its own: a crash costs one row");
  sub->add_flag("--buffers-apart", command->buffers_apart,
                "allocate each buffer of a GPU on its own, as compute-sanitizer needs it; slower")
      ->excludes("--isolate");
  sub->add_option("--jobs", command->jobs,
                  "prove so many cases at once, in as many processes; 0 = up to 4 on a GPU")
      ->check(CLI::Range(0, 64))
      ->capture_default_str()
      ->excludes("--isolate")
      ->excludes("--buffers-apart");
  sub->add_flag("--quiet", command->quiet, "no progress on stderr");
  sub->callback([command, sub, &invocation] {
    invocation.action = [command, sub, &invocation] {
      if (command->self_test) {
        refuse_beside_self_test(*sub);
      }
      return execute(*command, invocation);
    };
  });
}

}  // namespace lora_bench
