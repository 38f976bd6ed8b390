#include "compare/compare.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/invocation.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "core/units.h"

namespace lora_bench {
namespace {

struct CompareCommand {
  std::string base, fresh;
  std::string threshold;
  bool strict = false, markdown = false;
};

double threshold_of(const std::string& text) {
  const std::optional<double> share = share_in(text);
  if (!share || *share < 0 || *share > 1) {
    Diagnostic diagnostic;
    diagnostic.where.file = "--threshold " + text;
    diagnostic.what = fmt::format("'{}' is no share", text);
    diagnostic.allowed = "a share from 0 to 1, or 0% to 100%; write 3% for three percent";
    throw UsageError({diagnostic});
  }
  return *share;
}

ExitCode execute(const CompareCommand& command, const Invocation& invocation) {
  CompareOptions options;
  options.strict = command.strict;
  if (!command.threshold.empty()) {
    options.threshold = threshold_of(command.threshold);
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
  print_result(render_compare(report, command.markdown, table_style(invocation)));
  return report.exit;
}

}  // namespace

void add_compare(CLI::App& app, Invocation& invocation) {
  CLI::App* sub = app.add_subcommand("compare", "judge two results files row by row");
  const auto command = std::make_shared<CompareCommand>();
  sub->add_option("base", command->base, "results to compare with, .jsonl")->required();
  sub->add_option("new", command->fresh, "results to judge, .jsonl")->required();
  sub->add_option("--threshold", command->threshold,
                  "slowdown above which a row is a regression, e.g. 5%; replaces the scenario's")
      ->type_name("SHARE");
  sub->add_flag("--strict", command->strict, "refuse results of another machine, driver or build");
  sub->add_flag("--markdown", command->markdown, "Markdown, for a pull request");
  sub->callback([command, &invocation] {
    invocation.action = [command, &invocation] { return execute(*command, invocation); };
  });
}

}  // namespace lora_bench
