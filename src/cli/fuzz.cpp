#include "run/fuzz.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "cli/invocation.h"
#include "cli/selection.h"
#include "cli/terminal.h"
#include "run/worker.h"

namespace lora_bench {
namespace {

struct FuzzCommand {
  FuzzRequest request;
  std::string folder = ".";
  bool quick = false, serve_cases = false;
};

std::string counts_table(const FuzzReport& report) {
  std::size_t width = 7;
  for (const FuzzCount& count : report.counts) {
    width = std::max(width, count.backend.size());
  }
  std::string text = fmt::format("{:<{}}  {:>6}  {:>6}  {:>10}  {:>7}  {:>6}\n", "backend", width,
                                 "cases", "passed", "mistrusted", "skipped", "failed");
  for (const FuzzCount& count : report.counts) {
    text += fmt::format("{:<{}}  {:>6}  {:>6}  {:>10}  {:>7}  {:>6}{}{}\n", count.backend, width,
                        count.cases, count.passed, count.mistrusted, count.skipped, count.failed,
                        count.remark.empty() ? "" : "  ", count.remark);
  }
  return text;
}

// The reasons of most cases; a backend may name the numbers of each.
std::string skip_reasons(const FuzzReport& report) {
  constexpr std::size_t kTold = 3;
  std::string text;
  for (const FuzzCount& count : report.counts) {
    std::vector<std::pair<std::int64_t, std::string>> reasons;
    for (const auto& [reason, cases] : count.skipped_because) {
      reasons.emplace_back(-cases, reason);
    }
    std::sort(reasons.begin(), reasons.end());
    for (std::size_t i = 0; i < std::min(kTold, reasons.size()); ++i) {
      const std::int64_t cases = -reasons[i].first;
      text += fmt::format("SKIPPED on {}: {} case{}: {}\n", count.backend, cases,
                          cases == 1 ? "" : "s", reasons[i].second);
    }
    if (reasons.size() > kTold) {
      text += fmt::format("SKIPPED on {}: others for {} more reasons\n", count.backend,
                          reasons.size() - kTold);
    }
  }
  return text;
}

std::string written_cases_text(const std::vector<FuzzFailure>& cases) {
  std::string text;
  for (const FuzzFailure& failure : cases) {
    text += fmt::format(
        "\n{} {} on case {}: {}\n  {}{}\n  again: {}\n", name(failure.status_as_drawn),
        failure.backend, failure.index, failure.as_drawn, failure.how_written,
        failure.message == failure.as_drawn ? "" : ": " + failure.message, failure.command);
  }
  return text;
}

std::string last_line(const FuzzRequest& request, const FuzzReport& report) {
  std::string text = fmt::format(
      "seed {}: {} of {} cases on {} backend{} in {:.1f} s: {} failure{}", request.seed,
      report.cases, request.cases, report.counts.size(), report.counts.size() == 1 ? "" : "s",
      report.seconds, report.failures.size(), report.failures.size() == 1 ? "" : "s");
  text += report.ending.empty() ? "" : "; " + report.ending;
  return text +
         fmt::format("; exit {} ({})\n", static_cast<int>(report.exit), meaning(report.exit));
}

ExitCode execute(FuzzCommand command) {
  FuzzRequest& request = command.request;
  if (command.serve_cases) {
    return serve_cases(request.backends, request.timeout_s);
  }
  request.folder = command.folder;
  request.relations = !command.quick;
  request.tell = print_note;
  const FuzzReport report = fuzz(request);
  print_result(counts_table(report) + skip_reasons(report) + written_cases_text(report.mistrusted) +
               written_cases_text(report.failures) + "\n" + last_line(request, report));
  return report.exit;
}

}  // namespace

void add_fuzz(CLI::App& app, Invocation& invocation) {
  CLI::App* sub = app.add_subcommand(
      "fuzz", "prove backends on random cases; a failure is made small and written as a scenario");
  const auto command = std::make_shared<FuzzCommand>();
  FuzzRequest& request = command->request;
  sub->add_option("--cases", request.cases, "how many to draw")
      ->check(CLI::Range(1, 100000000))
      ->capture_default_str();
  sub->add_option("--seed", request.seed, "the same seed draws the same cases")
      ->check(seed_validator())
      ->capture_default_str();
  sub->add_option("--backends", request.backends,
                  "comma-separated; without, every usable one (see `list backends`)")
      ->delimiter(',')
      ->allow_extra_args(false);
  sub->add_option("--out", command->folder, "folder for failed cases; made if missing")
      ->type_name("DIR")
      ->capture_default_str();
  sub->add_option("--time-limit", request.time_limit_s, "seconds after which no case begins")
      ->check(CLI::Range(0.0, 1e9));
  sub->add_option("--timeout", request.timeout_s,
                  "seconds after which a backend hangs that has not come back")
      ->check(CLI::Range(0.001, 86400.0))
      ->capture_default_str();
  sub->add_option("--max-failures", request.failures_enough,
                  "leave a backend out of the rest after so many")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  sub->add_flag("--quick", command->quick, "without the relations between launches (level 3)");
  sub->add_flag("--serve-cases", command->serve_cases)->group("");  // run/worker.h
  sub->add_flag("--quiet", request.quiet, "no progress on stderr");
  sub->callback(
      [command, &invocation] { invocation.action = [command] { return execute(*command); }; });
}

}  // namespace lora_bench
