#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <sstream>

#include "cli/invocation.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "report/columns.h"
#include "report/sink.h"

namespace lora_bench {
namespace {

struct ReportCommand {
  std::vector<std::string> files, filters, columns, out;
  std::vector<std::string> pivot;  // DOWN x ACROSS
  std::string value = "floor_ratio";
  bool markdown = false;
};

ExitCode execute(const ReportCommand& command, const Invocation& invocation) {
  const Filter filter(command.filters);
  std::vector<Row> rows;
  Context context;
  for (const std::string& file : command.files) {
    Results results = read_results(file);
    for (const std::string& warning : results.warnings) {
      print_note(warning);
    }
    if (rows.empty()) {
      context = results.context;
    } else if (context.device_identity != results.context.device_identity ||
               context.commit != results.context.commit) {
      print_note(
          fmt::format("{} is of another machine or build than {}", file, command.files.front()));
    }
    for (Row& row : results.rows) {
      if (filter.matches(row)) {
        rows.push_back(std::move(row));
      }
    }
  }
  if (rows.empty()) {
    throw UsageError("no row is left to report");
  }
  const auto render = [&](Sink& sink) {
    sink.begin(context);
    for (const Row& row : rows) {
      sink.row(row);
    }
    sink.finish();
  };
  for (const std::string& path : command.out) {
    render(*make_file_sink(path, false));
  }
  if (!command.pivot.empty()) {
    print_result(render_pivot(rows, command.pivot.front(), command.pivot.back(), command.value,
                              command.markdown));
    return ExitCode::kPass;
  }
  TableStyle style = table_style(invocation);
  style.columns = command.columns;
  std::ostringstream text;
  render(*(command.markdown ? make_markdown_sink(text) : make_table_sink(text, style)));
  print_result(text.str());
  return ExitCode::kPass;
}

}  // namespace

void add_report(CLI::App& app, Invocation& invocation) {
  CLI::App* sub = app.add_subcommand("report", "render stored .jsonl results again, or pivot them");
  const auto command = std::make_shared<ReportCommand>();
  sub->add_option("file", command->files, "results, .jsonl")->required();
  sub->add_option("--filter", command->filters, "keep rows where COLUMN OP VALUE holds")
      ->take_all()
      ->allow_extra_args(false);
  sub->add_option("--columns", command->columns, "columns of the table (see `list metrics`)")
      ->delimiter(',')
      ->allow_extra_args(false);
  sub->add_option("--out", command->out, "also write FILE (.csv, .md, .jsonl or .txt)")
      ->take_all()
      ->allow_extra_args(false);
  sub->add_option_function<std::vector<std::string>>(
         "--pivot",
         [command](const std::vector<std::string>& words) {
           command->pivot = words;
           if (words.size() == 3 && words[1] == "x") {
             command->pivot = {words[0], words[2]};
           }
           if (command->pivot.size() != 2) {
             throw CLI::ValidationError("--pivot", "takes two keys: DOWN x ACROSS");
           }
         },
         "a table of one value: DOWN x ACROSS, e.g. --pivot rank x tokens")
      ->expected(2, 3);
  sub->add_option("--value", command->value, "the column in the cells of --pivot")
      ->capture_default_str();
  sub->add_flag("--markdown", command->markdown, "Markdown instead of aligned text");
  sub->callback([command, &invocation] {
    invocation.action = [command, &invocation] { return execute(*command, invocation); };
  });
}

}  // namespace lora_bench
