#include "report/markdown.h"

#include <fmt/format.h>

#include <ostream>

#include "report/screen.h"
#include "report/sink.h"
#include "report/view.h"

namespace lora_bench {
namespace {

std::string command_of(const Context& context) {
  return one_line(fmt::format("{}", fmt::join(context.argv, " ")));
}

std::string or_unknown(const std::string& text) { return text.empty() ? "unknown" : text; }

void add_table(const ScenarioGroup& scenario, const std::vector<View>& views, std::string& out) {
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
    const Row* best = best_of(group);
    for (const Row* row : group) {
      for (const View& view : views) {
        const std::string cell = markdown_cell(view.text(*row));
        const bool bold = row == best && view.key == "time_us";
        const std::string_view stars = bold ? "**" : "";
        out += fmt::format("| {}{}{} ", stars, cell, stars);
      }
      out += "|\n";
    }
  }
}

void add_notes(const std::vector<Row>& rows, std::string& out) {
  std::string notes;
  for (const Row& row : rows) {
    for (const std::string& note : notes_of(row)) {
      notes += fmt::format("- {} / {}: {} {}\n", markdown_cell(row.case_id),
                           markdown_cell(row.backend), name(row.status), markdown_cell(note));
    }
  }
  for (const std::string& warning : count_by_warning(rows)) {
    notes += fmt::format("- warning: {}\n", markdown_cell(warning));
  }
  out += fmt::format("\n{}. Bold: the best backend of a case.\n", count_by_status(rows));
  if (!notes.empty()) {
    out += fmt::format("\n{}", notes);
  }
}

class MarkdownSink : public Sink {
 public:
  explicit MarkdownSink(std::ostream& out) : out_(out) {}

  void begin(const Context& context) override { context_ = context; }
  void row(const Row& row) override { rows_.push_back(row); }
  void finish() override {
    std::string text = fmt::format(
        "# lora-bench results\n\n- machine: {}, driver {}\n- lora-bench {}, commit {}{}, {}\n"
        "- started: {}\n- command: `{}`\n",
        or_unknown(context_.device_name), or_unknown(context_.driver),
        or_unknown(context_.tool_version), or_unknown(context_.commit),
        context_.dirty ? " (dirty)" : "", or_unknown(context_.build),
        or_unknown(context_.started_utc), command_of(context_));
    const std::vector<View> views = choose_views(rows_, {});
    for (const ScenarioGroup& scenario : group_rows(rows_)) {
      add_table(scenario, views, text);
    }
    add_notes(rows_, text);
    out_ << text;
  }

 private:
  std::ostream& out_;
  Context context_;
  std::vector<Row> rows_;
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

std::unique_ptr<Sink> make_markdown_sink(std::ostream& out) {
  return std::make_unique<MarkdownSink>(out);
}

}  // namespace lora_bench
