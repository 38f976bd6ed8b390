#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <iterator>
#include <memory>
#include <set>
#include <sstream>
#include <utility>

#include "cli/invocation.h"
#include "cli/selection.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "report/columns.h"
#include "report/model_steps.h"
#include "report/output_file.h"
#include "report/peers.h"
#include "report/sink.h"
#include "scenario/scenario.h"

namespace lora_bench {
namespace {

constexpr const char* kUsualValue = "floor_ratio";

struct ReportCommand {
  std::vector<std::string> files, filters, cases, columns, out;
  std::vector<std::string> pivot;  // DOWN x ACROSS
  std::string value, rank_by;
  bool markdown = false;
};

std::vector<std::string> swept_keys(const std::vector<Row>& rows) {
  std::set<std::string> keys;
  for (const Row& row : rows) {
    for (const auto& [key, value] : row.id.point) {
      keys.insert(key);
    }
  }
  return {keys.begin(), keys.end()};
}

// Of each case one, however many rows it has.
std::vector<std::string> case_ids(const std::vector<Row>& rows) {
  std::set<std::pair<std::string, std::string>> cases;
  for (const Row& row : rows) {
    cases.emplace(row.id.scenario, row.id.case_id);
  }
  std::vector<std::string> ids;
  ids.reserve(cases.size());
  for (const auto& [scenario, id] : cases) {
    ids.push_back(id);
  }
  return ids;
}

void refuse_pivot_in(const std::vector<std::string>& files) {
  for (const std::filesystem::path path : files) {
    if (path.extension() != ".md" && path.extension() != ".txt") {
      throw UsageError(fmt::format("a pivot is written as .md or .txt, not '{}'", path.string()));
    }
  }
}

void report_pivot(const ReportCommand& command, const std::vector<Row>& rows) {
  const auto text = [&](bool markdown) {
    return render_pivot(rows, command.pivot.front(), command.pivot.back(),
                        command.value.empty() ? kUsualValue : command.value, markdown);
  };
  refuse_pivot_in(command.out);
  const std::string shown = text(command.markdown);
  for (const std::filesystem::path path : command.out) {
    OutputFile file(path, false);
    file.write(text(path.extension() == ".md"));
    file.close();
  }
  print_result(shown);
}

Results read_all(const std::vector<std::string>& files) {
  std::vector<Results> read;
  read.reserve(files.size());
  for (const std::string& file : files) {
    read.push_back(read_results(file));
  }
  return merge_results(read);
}

// What would be ignored was meant to do something.
void refuse_idle_options(const ReportCommand& command) {
  if (command.pivot.empty() && !command.value.empty()) {
    throw UsageError(
        fmt::format("--value {} fills the cells of --pivot, which is missing; add --pivot DOWN x "
                    "ACROSS, or show the column with --columns",
                    command.value));
  }
  if (!command.pivot.empty() && !command.columns.empty()) {
    throw UsageError("--columns chooses those of the table, not of --pivot; leave one of them out");
  }
  if (!command.pivot.empty() && !command.rank_by.empty()) {
    throw UsageError("--rank-by orders rows of the table, not of --pivot; leave one of them out");
  }
}

// The file would be emptied of what this report leaves out: filtered rows, columns, samples.
void refuse_own_input(const ReportCommand& command) {
  const auto real = [](const std::string& path) {
    std::error_code unknown;
    const std::filesystem::path found = std::filesystem::weakly_canonical(path, unknown);
    return unknown ? std::filesystem::path(path) : found;
  };
  for (const std::string& out : command.out) {
    for (const std::string& file : command.files) {
      std::error_code unknown;  // two names of one file are seen only by what they lead to
      if (real(out) == real(file) || std::filesystem::equivalent(out, file, unknown)) {
        throw UsageError(fmt::format(
            "'{}' is read by this report and would be written over; give --out another file", out));
      }
    }
  }
}

ExitCode execute(const ReportCommand& command, const Invocation& invocation) {
  refuse_idle_options(command);
  refuse_own_input(command);
  Results results = read_all(command.files);
  lend_floors(results);
  add_speedups(results.rows, command.rank_by);
  for (const std::string& warning : results.warnings) {
    print_note(warning);
  }
  refuse_unmatched_cases(command.cases, case_ids(results.rows), "report");
  const Filter filter(command.filters, swept_keys(results.rows));
  std::vector<Row> rows;
  std::copy_if(results.rows.begin(), results.rows.end(), std::back_inserter(rows),
               [&](const Row& row) {
                 return case_selected(command.cases, row.id.case_id) && filter.matches(row);
               });
  if (rows.empty()) {
    throw UsageError("no row is left to report");
  }
  std::string notes = note_on_replaced({command.out.begin(), command.out.end()});
  if (!notes.empty()) {
    notes.pop_back();  // print_note ends the line
  }
  if (!command.pivot.empty()) {
    report_pivot(command, rows);
  } else {
    TableStyle style = table_style(invocation);
    style.columns = command.columns;
    style.rank_by = command.rank_by;
    std::ostringstream text;
    // Refuses unknown columns before a file is opened.
    render(results, rows,
           *(command.markdown ? make_markdown_sink(text, command.columns, command.rank_by)
                              : make_table_sink(text, style)),
           command.rank_by);
    for (const std::string& path : command.out) {
      render(results, rows, *make_file_sink(path, false, command.columns, command.rank_by),
             command.rank_by);
    }
    print_result(
        text.str() +
        render_model_steps(model_steps(rows, results.rows, layers_of_models()), command.markdown));
  }
  if (!notes.empty()) {
    print_note(notes);
  }
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
  sub->add_option("--case", command->cases, "keep the case of this id (globs allowed)")
      ->take_all()
      ->allow_extra_args(false);
  sub->add_option("--columns", command->columns, "columns of the table (see `list metrics`)")
      ->delimiter(',')
      ->allow_extra_args(false);
  add_rank_by(*sub, command->rank_by, kRanksRows);
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
  sub->add_option("--value", command->value,
                  fmt::format("the column in the cells of --pivot; without it {}", kUsualValue));
  sub->add_flag("--markdown", command->markdown, "Markdown instead of aligned text");
  sub->callback([command, &invocation] {
    invocation.action = [command, &invocation] { return execute(*command, invocation); };
  });
}

}  // namespace lora_bench
