#include "cli/selection.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "cli/terminal.h"
#include "core/error.h"
#include "core/units.h"
#include "layers/layer_problem.h"
#include "ops/auto_choice.h"
#include "ops/auto_tuning.h"
#include "run/select.h"
#include "run/tune.h"

namespace lora_bench {
namespace {

// The parser would take -1 for the largest number and cut what is too large.
std::string why_no_seed(const std::string& text) {
  return unsigned_in(text)
             ? ""
             : fmt::format("'{}' is no seed; allowed: an integer from 0 to {}", text, UINT64_MAX);
}

// SCENARIO/CASE, as `export` takes it: what to write instead, or "".
std::string with_case_apart(const std::string& named) {
  const std::size_t slash = named.rfind('/');
  if (slash == std::string::npos || names_scenario(named) ||
      !names_scenario(named.substr(0, slash))) {
    return "";
  }
  return fmt::format("{} --case {}", named.substr(0, slash), named.substr(slash + 1));
}

// Of a command that asks auto for its own choice.
std::optional<SettingFault> fault_of_being_tuned(const Tuning& tuning) {
  if (tuning.empty()) {
    return std::nullopt;
  }
  return SettingFault{
      "tuning." + tuning.front().knob,
      fmt::format("tuning {{{}}}, where tune searches from what auto itself chooses",
                  tuning_text(tuning)),
      "a case without tuning: leave it out, or choose others with --case or --filter"};
}

}  // namespace

bool names_scenario(const std::string& text) {
  try {
    static_cast<void>(find_scenario(text));
    return true;
  } catch (const UsageError&) {
    return false;
  }
}

CLI::Validator seed_validator() { return {why_no_seed, ""}; }

void add_rank_by(CLI::App& command, std::string& rank_by, const std::string& what) {
  command.add_option("--rank-by", rank_by, what)->check(CLI::IsMember({"time_us", "alone_us"}));
}

void add_selection(CLI::App& command, Selection& selection, bool files_required) {
  CLI::Option* files =
      command.add_option("scenario", selection.files,
                         "scenario files, or names of shipped ones (see `list scenarios`)");
  if (files_required) {
    files->required();
  }
  command
      .add_option("--set", selection.overrides,
                  "override a field in every scenario: KEY=VALUE, e.g. adapters.rank=32")
      ->take_all()
      ->allow_extra_args(false);
  command
      .add_option("--filter", selection.filters,
                  "keep rows where COLUMN OP VALUE holds, e.g. 'rank>=64', 'case=*qkv*'")
      ->take_all()
      ->allow_extra_args(false);
  command.add_option("--case", selection.cases, "keep the case of this id (globs allowed)")
      ->take_all()
      ->allow_extra_args(false);
  command
      .add_option(
          "--backends", selection.backends,
          "comma-separated; replaces the scenario's (see `list backends`); a plugin is PATH.so, "
          "PATH.py, peer:NAME or NAME=PATH")
      ->delimiter(',')
      ->allow_extra_args(false);
  command.add_option("--tuning", selection.tuning,
                     "FILE.yaml of `tune`, from this kind of GPU: what backend auto launches");
  command.add_option("--seed", selection.seed, "replaces the seed of every scenario")
      ->check(seed_validator());
  command.add_option("--max-cases", selection.max_cases, "refuse a sweep with more cases")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
}

std::vector<Scenario> load_selected(const Selection& selection) {
  LoadOptions options;
  options.overrides = selection.overrides;
  options.max_cases = selection.max_cases;
  options.check_backend = check_backend;
  options.check_layer = layer_fault;
  options.tuning = tuning_rules();
  if (!selection.takes_tuned) {
    options.tuning.fault = fault_of_being_tuned;
  }
  options.keep_refused = true;
  options.timed = selection.timed;
  if (selection.seed) {
    options.overrides.push_back(fmt::format("seed={}", *selection.seed));
  }
  std::vector<Scenario> scenarios;
  std::vector<Diagnostic> diagnostics;
  for (const std::string& file : selection.files) {
    try {
      Scenario scenario = load_scenario(find_scenario(file), options);
      // As the user wrote it: `anchors` stays `anchors` in the command that reruns a row, wherever
      // the scenarios are installed.
      for (Case& spec : scenario.cases) {
        spec.scenario_file = file;
      }
      scenarios.push_back(std::move(scenario));
    } catch (const UsageError& error) {
      diagnostics.insert(diagnostics.end(), error.diagnostics().begin(), error.diagnostics().end());
      if (const std::string apart = with_case_apart(file); !apart.empty()) {
        diagnostics.back().suggestion = apart;
      }
    }
  }
  if (!diagnostics.empty()) {
    throw UsageError(std::move(diagnostics));
  }
  return scenarios;
}

namespace {

// Without a GPU nothing is launched, and `plan --explain` explains for an H200.
TuningDevice tuning_device() {
  if (!why_no_gpu().empty()) {
    return {.device = {}, .name = "NVIDIA H200", .here = false};
  }
  const DeviceFacts facts = gpu_facts();
  return {.device = auto_device(facts), .name = facts.name};
}

}  // namespace

RunRequest request_for(const Selection& selection) {
  RunRequest request;
  request.scenarios = load_selected(selection);
  if (!selection.tuning.empty()) {
    request.tuning_file = selection.tuning;
    request.tuned =
        apply_tunings(request.scenarios, load_tuning_file(selection.tuning, tuning_rules()),
                      selection.tuning, tuning_device());
  }
  request.overrides = selection.overrides;
  if (selection.seed) {
    request.overrides.push_back(fmt::format("seed={}", *selection.seed));
  }
  request.max_cases = selection.max_cases;
  request.backends = selection.backends;
  request.filters = selection.filters;
  request.cases = selection.cases;
  return request;
}

std::string notes_on_tuning(const RunRequest& request, const std::vector<PlannedRow>& planned) {
  return request.tuning_file.empty() ? ""
                                     : tuning_notes(planned, request.tuned, request.tuning_file);
}

void print_notes_on_tuning(const RunRequest& request, const std::vector<PlannedRow>& planned) {
  if (std::string notes = notes_on_tuning(request, planned); !notes.empty()) {
    notes.pop_back();  // print_note ends the line
    print_note(notes);
  }
}

}  // namespace lora_bench
