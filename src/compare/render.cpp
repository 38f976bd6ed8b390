#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "compare/compare.h"
#include "report/markdown.h"
#include "report/screen.h"

namespace lora_bench {
namespace {

constexpr std::size_t kColumns = 8;
using Line = std::array<std::string, kColumns>;

const Line& header() {
  static const Line line{"verdict", "case",   "backend", "base us",
                         "new us",  "change", "noise",   "why"};
  return line;
}

bool is_number(std::size_t column) { return column >= 3 && column <= 6; }

std::string time_text(const std::optional<double>& time_us) {
  return time_us ? fmt::format("{:.2f}", *time_us) : "";
}

Line line_of(const ComparedRow& row, bool with_scenario) {
  return {std::string(name(row.change)),
          one_line(with_scenario ? row.scenario + ": " + row.case_id : row.case_id),
          one_line(row.backend),
          time_text(row.base_us),
          time_text(row.new_us),
          row.ratio ? fmt::format("{:+.1f} %", (*row.ratio - 1) * 100) : "",
          row.noise_share ? fmt::format("{:.1f} %", *row.noise_share * 100) : "",
          one_line(row.reason)};
}

bool several_scenarios(const CompareReport& report) {
  return std::any_of(report.rows.begin(), report.rows.end(), [&](const ComparedRow& row) {
    return row.scenario != report.rows.front().scenario;
  });
}

std::string summary(const CompareReport& report) {
  std::string counts;
  for (auto row = report.rows.begin(); row != report.rows.end();) {
    const auto next = std::find_if(row, report.rows.end(),
                                   [&](const ComparedRow& r) { return r.change != row->change; });
    counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", next - row, name(row->change));
    row = next;
  }
  return counts.empty() ? "no rows" : counts;
}

std::string_view outcome(ExitCode exit) {
  switch (exit) {
    case ExitCode::kPass:
      return "no regression";
    case ExitCode::kWrongResult:
      return "broken";
    case ExitCode::kRegression:
      return "slower";
    default:
      return "inconclusive";
  }
}

std::string_view colour_of(Change change) {
  switch (change) {
    case Change::kBroken:
    case Change::kSlower:
      return "\x1b[31m";
    case Change::kMissing:
    case Change::kInconclusive:
      return "\x1b[33m";
    case Change::kFaster:
      return "\x1b[32m";
    default:
      return "";
  }
}

void add_aligned(const Line& line, const std::array<std::size_t, kColumns>& widths,
                 std::string_view colour, std::string& out) {
  std::string text;
  for (std::size_t i = 0; i < kColumns; ++i) {
    const std::string padding(widths[i] - screen_width(line[i]), ' ');
    text += i == 0 ? "" : "  ";
    text += is_number(i) ? padding : "";
    const bool coloured = i == 0 && !colour.empty();
    text.append(coloured ? colour : "").append(line[i]).append(coloured ? "\x1b[0m" : "");
    text += is_number(i) ? "" : padding;
  }
  text.erase(text.find_last_not_of(' ') + 1);
  out += fmt::format("{}\n", text);
}

std::string as_text(const CompareReport& report, bool colour) {
  const bool with_scenario = several_scenarios(report);
  std::vector<Line> lines{header()};
  for (const ComparedRow& row : report.rows) {
    lines.push_back(line_of(row, with_scenario));
  }
  std::array<std::size_t, kColumns> widths{};
  for (const Line& line : lines) {
    for (std::size_t i = 0; i < kColumns; ++i) {
      widths[i] = std::max(widths[i], screen_width(line[i]));
    }
  }
  std::string out;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const bool coloured = colour && i > 0;
    add_aligned(lines[i], widths, coloured ? colour_of(report.rows[i - 1].change) : "", out);
  }
  out += fmt::format("\n{}: {}\n", outcome(report.exit), summary(report));
  for (const std::string& warning : report.warnings) {
    out += fmt::format("warning: {}\n", one_line(warning));
  }
  return out;
}

void add_markdown_line(const Line& line, std::string& out) {
  for (const std::string& cell : line) {
    out += fmt::format("| {} ", markdown_cell(cell));
  }
  out += "|\n";
}

void add_markdown_table(const std::vector<Line>& lines, std::string& out) {
  add_markdown_line(header(), out);
  for (std::size_t i = 0; i < kColumns; ++i) {
    out += is_number(i) ? "| ---: " : "| --- ";
  }
  out += "|\n";
  for (const Line& line : lines) {
    add_markdown_line(line, out);
  }
}

std::string as_markdown(const CompareReport& report) {
  const bool with_scenario = several_scenarios(report);
  std::vector<Line> notable;
  std::vector<Line> all;
  for (const ComparedRow& row : report.rows) {
    all.push_back(line_of(row, with_scenario));
    if (row.change != Change::kSame && row.change != Change::kNotCompared) {
      notable.push_back(all.back());
    }
  }
  std::string out = fmt::format("**lora-bench: {}** ({})\n", outcome(report.exit), summary(report));
  for (const std::string& warning : report.warnings) {
    out += fmt::format("\n- warning: {}", markdown_cell(warning));
  }
  out += report.warnings.empty() ? "" : "\n";
  if (!notable.empty()) {
    out += '\n';
    add_markdown_table(notable, out);
  }
  if (!all.empty()) {
    out += fmt::format("\n<details><summary>all {} rows</summary>\n\n", all.size());
    add_markdown_table(all, out);
    out += "\n</details>\n";
  }
  return out;
}

}  // namespace

std::string render_compare(const CompareReport& report, bool markdown, bool colour) {
  return markdown ? as_markdown(report) : as_text(report, colour);
}

}  // namespace lora_bench
