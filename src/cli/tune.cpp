#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <utility>

#include "cli/invocation.h"
#include "cli/selection.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "ops/auto_choice.h"
#include "ops/python_plugin.h"
#include "report/output_file.h"
#include "report/screen.h"
#include "run/case_runner.h"
#include "run/context.h"
#include "run/progress.h"
#include "run/select.h"
#include "run/tune.h"
#include "run/watch.h"

namespace lora_bench {
namespace {

struct TuneOptions {
  Selection selection;
  std::string out, rank_by, engine;
  double limit_s = 600;
  bool quiet = false;
};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Proves, then times, as `run` does. A result that is wrong ends the search: no tuning may change
// a bit.
class Timer {
 public:
  explicit Timer(std::string rank_by)
      : auto_(select_backend("auto")), rank_by_(std::move(rank_by)) {}

  std::optional<Timed> time_of(const Case& spec) {
    const Row row = run_case({.spec = spec,
                              .backend = auto_,
                              .relations = false,
                              .timing = true,
                              .alone = rank_column(rank_by_) == "alone_us",
                              .thresholds = {},
                              .repro = ""},
                             targets_, kept_);
    if (exit_code(row.status) == ExitCode::kWrongResult && wrong_.empty()) {
      wrong_ = fmt::format("{} with tuning {{{}}} is {}: {}", spec.id, row.step.tuning,
                           name(row.status), row.message);
    }
    const std::optional<double> us = ranked_us(row, rank_by_);
    if (row.status != Status::kPassed || !us || row.interrupted) {
      return std::nullopt;
    }
    return Timed{*us, ranked_noise_us(row, rank_by_)};
  }
  [[nodiscard]] const std::string& wrong() const { return wrong_; }
  [[nodiscard]] Targets& targets() { return targets_; }

 private:
  Selected auto_;
  std::string rank_by_;
  Targets targets_;
  KeptGroundwork kept_;
  std::string wrong_;
};

// What would be ignored was meant to do something.
void refuse_idle_options(const Selection& selection) {
  if (!selection.tuning.empty()) {
    throw UsageError(fmt::format(
        "tune searches from what auto itself chooses and reads no tunings: leave out --tuning {}; "
        "run, verify, plan and export read it",
        selection.tuning));
  }
  if (!selection.backends.empty() && selection.backends != std::vector<std::string>{"auto"}) {
    throw UsageError(fmt::format("tune launches auto and no other backend: leave out --backends {}",
                                 fmt::join(selection.backends, ",")));
  }
}

// The search is in Python, as what it tries is: python/lora_bench/peers/_tune.py.
ExitCode tune_engine(const TuneOptions& options) {
  if (!options.rank_by.empty() || !options.selection.filters.empty()) {
    throw UsageError(
        "--for searches by time_us and over whole scenarios or --case: leave out "
        "--rank-by and --filter");
  }
  std::vector<std::string> words{"tune",
                                 "--for",
                                 options.engine,
                                 "--out",
                                 options.out,
                                 "--time-limit",
                                 fmt::format("{}", options.limit_s)};
  for (const auto& [option, values] : {std::pair("--case", &options.selection.cases),
                                       std::pair("--set", &options.selection.overrides)}) {
    for (const std::string& value : *values) {
      words.insert(words.end(), {option, value});
    }
  }
  words.insert(words.end(), options.selection.files.begin(), options.selection.files.end());
  return static_cast<ExitCode>(run_python_module("lora_bench.peers", words));
}

ExitCode execute(const TuneOptions& options, const Invocation& invocation) {
  refuse_idle_options(options.selection);
  if (!options.engine.empty()) {
    return tune_engine(options);
  }
  RunRequest request = request_for(options.selection);
  request.backends = {"auto"};
  const std::vector<PlannedRow> rows = plan_rows(request);
  if (const std::string why_not = why_no_gpu(); !why_not.empty()) {
    throw EnvironmentError(fmt::format(
        "tune times on a GPU: {}; run it where there is one with its driver, by a lora-bench that "
        "was built with CUDA (nvcc 12.0 or later); `lora-bench plan {} --backends auto --explain` "
        "says anywhere what auto launches on an NVIDIA H200",
        why_not, fmt::join(options.selection.files, " ")));
  }
  Timer timer(options.rank_by);
  const DeviceFacts& facts = timer.targets().facts(Space::kDevice);
  const Context context = make_context(facts, request.scenarios, invocation.argv);
  OutputFile file(options.out, false);
  TuningFile tunings{
      facts.name, "lora-bench " + context.tool_version, context.commit, context.started_utc, {}};
  const auto keep = [&](const std::vector<TunedShape>& found) {
    tunings.shapes = found;
    file.truncate(0);
    file.write(tuning_file_text(tunings));
  };
  keep({});
  Progress progress(1, options.quiet);
  const double start = seconds_now();
  const TuneReport report =
      tune({.rows = rows,
            .device = auto_device(facts),
            .limit_s = options.limit_s,
            .time_of = [&](const Case& spec) { return timer.time_of(spec); },
            .seconds = seconds_now,
            .interrupted = [&] { return interrupted() || !timer.wrong().empty(); },
            .keep = keep,
            .progress =
                [&](std::int64_t done, std::int64_t total, const std::string& what) {
                  progress.say(fmt::format("{}, {:.0f} of {:.0f} s",
                                           progress_text(done, total, seconds_now() - start),
                                           seconds_now() - start, options.limit_s),
                               what);
                }});
  progress.clear();
  file.close();
  print_result(fmt::format(
      "{} of {} classes of shapes searched, {} launches tried; {} faster than what auto chooses, "
      "in {}\n",
      report.searched, report.classes, report.tried, report.found.size(), options.out));
  if (!timer.wrong().empty()) {
    print_note(timer.wrong());
    return ExitCode::kWrongResult;
  }
  if (report.searched < report.classes) {
    print_note(interrupted() ? "interrupted: the file holds what was found before"
                             : "out of time before all classes were searched: raise --time-limit");
    return ExitCode::kInconclusive;
  }
  return ExitCode::kPass;
}

}  // namespace

void add_tune(CLI::App& app, Invocation& invocation) {
  CLI::App* sub = app.add_subcommand(
      "tune",
      "search what backend auto, or an engine's kernels, should launch on this GPU; writes files");
  const auto options = std::make_shared<TuneOptions>();
  add_selection(*sub, options->selection, true);
  options->selection.takes_tuned = false;
  for (const char* idle : {"--tuning", "--backends"}) {
    sub->get_option(idle)->group("");  // not in the help of what refuses it
  }
  sub->add_option("--time-limit", options->limit_s, "seconds for all shapes together")
      ->check(CLI::Range(1.0, 1e6))
      ->capture_default_str();
  add_rank_by(*sub, options->rank_by, "the time that shall be the least");
  sub->add_option("--for", options->engine,
                  "vllm or sglang: search its launch parameters, and write the files that it loads")
      ->check(CLI::IsMember({"vllm", "sglang"}));
  sub->add_option("--out", options->out,
                  "FILE.yaml to write, kept up to date while it searches; with --for a folder")
      ->required();
  sub->add_flag("--quiet", options->quiet, "no progress on stderr");
  sub->callback([options, &invocation] {
    invocation.action = [options, &invocation] { return execute(*options, invocation); };
  });
}

}  // namespace lora_bench
