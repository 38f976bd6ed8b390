#include "report/screen.h"

#include <fmt/format.h>

#include <ostream>
#include <utility>

#include "report/columns.h"
#include "report/sink.h"

namespace lora_bench {
namespace {

std::string command_of(const Context& context) {
  return one_line(fmt::format("{}", fmt::join(context.argv, " ")));
}

std::string or_unknown(const std::string& text) { return text.empty() ? "unknown" : text; }

// Whether any cell is bold.
bool add_table(const ScenarioGroup& scenario, const std::vector<View>& views,
               std::string_view rank_by, std::string& out) {
  bool any_bold = false;
  out += fmt::format("\n## {}\n\n", markdown_cell(scenario.name));
  if (!scenario.settings.empty()) {
    out += fmt::format("{}\n\n", scenario.settings);
  }
  std::string rule;
  for (const View& view : views) {
    out += fmt::format("| {} ", markdown_cell(view.header));
    rule += view.right ? "| ---: " : "| --- ";
  }
  out += fmt::format("|\n{}|\n", rule);
  for (const CaseGroup& group : scenario.cases) {
    const Row* best = best_of(group, rank_by);
    for (const Row* row : group) {
      for (const View& view : views) {
        const std::string cell = markdown_cell(view.text(*row));
        const bool bold = row == best && view.key == rank_column(rank_by);
        any_bold = any_bold || bold;
        const std::string_view stars = bold ? "**" : "";
        out += fmt::format("| {}{}{} ", stars, cell, stars);
      }
      out += "|\n";
    }
  }
  return any_bold;
}

void add_notes(const std::vector<Row>& rows, const std::vector<std::string>& more, bool any_bold,
               std::string& out) {
  std::string notes;
  for (const Row& row : rows) {
    for (const std::string& note : notes_of(row)) {
      notes += fmt::format("- {} / {}: {} {}\n", markdown_cell(row.id.case_id),
                           markdown_cell(row.id.backend), name(row.status), markdown_cell(note));
    }
  }
  for (const std::string& note : more) {
    notes += fmt::format("- {}\n", markdown_cell(note));
  }
  for (const std::string& warning : count_by_warning(rows)) {
    notes += fmt::format("- warning: {}\n", markdown_cell(warning));
  }
  out += fmt::format("\n{}.{}\n", count_by_status(rows),
                     any_bold ? " Bold: the best backend of a case." : "");
  if (!notes.empty()) {
    out += fmt::format("\n{}", notes);
  }
}

class MarkdownSink : public Sink {
 public:
  MarkdownSink(std::ostream& out, std::vector<std::string> columns, std::string rank_by)
      : out_(out), columns_(std::move(columns)), rank_by_(std::move(rank_by)) {}

  void begin(const Context& context) override { context_ = context; }
  void row(const Row& row) override { rows_.push_back(row); }
  void note(const std::string& sentence) override { notes_.push_back(sentence); }
  void finish() override {
    std::string text = fmt::format(
        "# lora-bench results\n\n- machine: {}, driver {}\n- lora-bench {}, commit {}{}, {}\n"
        "- started: {}\n- command: `{}`\n",
        or_unknown(context_.device_name), or_unknown(context_.driver),
        or_unknown(context_.tool_version), or_unknown(context_.commit),
        context_.dirty ? " (dirty)" : "", or_unknown(context_.build),
        or_unknown(context_.started_utc), command_of(context_));
    const std::vector<View> views = choose_views(rows_, columns_, rank_by_);
    bool any_bold = false;
    for (const ScenarioGroup& scenario : group_rows(rows_, rank_by_)) {
      any_bold = add_table(scenario, views, rank_by_, text) || any_bold;
    }
    add_notes(rows_, notes_, any_bold, text);
    out_ << text;
  }

 private:
  std::ostream& out_;
  std::vector<std::string> columns_;
  std::string rank_by_;
  Context context_;
  std::vector<Row> rows_;
  std::vector<std::string> notes_;
};

}  // namespace

std::string markdown_cell(const std::string& text) {
  std::string escaped;
  for (const char c : one_line(text)) {
    if (c == '|' || c == '<' || c == '\\') {
      escaped += '\\';
    }
    escaped += c;
  }
  return escaped;
}

std::unique_ptr<Sink> make_markdown_sink(std::ostream& out, const std::vector<std::string>& columns,
                                         const std::string& rank_by) {
  check_view_keys(columns);
  return std::make_unique<MarkdownSink>(out, columns, rank_by);
}

}  // namespace lora_bench
