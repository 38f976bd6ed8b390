#include "compare/compare.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/invocation.h"
#include "cli/terminal.h"

namespace lora_bench {
namespace {

struct CompareCommand {
  std::string base, fresh;
  std::optional<double> threshold_percent;
  bool strict = false, markdown = false;
};

ExitCode execute(const CompareCommand& command, const Invocation& invocation) {
  CompareOptions options;
  options.strict = command.strict;
  if (command.threshold_percent) {
    options.threshold = *command.threshold_percent / 100;
    options.threshold_given = true;
  }
  const Results base = read_results(command.base);
  const Results fresh = read_results(command.fresh);
  for (const Results* results : {&base, &fresh}) {
    for (const std::string& warning : results->warnings) {
      print_note(warning);
    }
  }
  const CompareReport report = compare(base, fresh, options);
  print_result(render_compare(report, command.markdown, use_colour(invocation)));
  return report.exit;
}

}  // namespace

void add_compare(CLI::App& app, Invocation& invocation) {
  CLI::App* sub = app.add_subcommand("compare", "judge two results files row by row");
  const auto command = std::make_shared<CompareCommand>();
  sub->add_option("base", command->base, "results to compare with, .jsonl")->required();
  sub->add_option("new", command->fresh, "results to judge, .jsonl")->required();
  sub->add_option("--threshold", command->threshold_percent,
                  "slowdown in percent above which a row is a regression; replaces the scenario's")
      ->check(CLI::Range(0.0, 1000.0));
  sub->add_flag("--strict", command->strict, "refuse results of another machine, driver or build");
  sub->add_flag("--markdown", command->markdown, "Markdown, for a pull request");
  sub->callback([command, &invocation] {
    invocation.action = [command, &invocation] { return execute(*command, invocation); };
  });
}

}  // namespace lora_bench
