#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "compare/compare.h"
#include "report/grid.h"
#include "report/screen.h"

namespace lora_bench {
namespace {

constexpr std::size_t kColumns = 8;
constexpr std::size_t kReason = 7;  // on a screen a line of its own below the row
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

std::vector<GridCell> cells_of(const Line& line, std::string_view colour) {
  std::vector<GridCell> cells;
  for (std::size_t i = 0; i < kReason; ++i) {
    cells.push_back({line[i], i == 0 ? colour : std::string_view{}});
  }
  return cells;
}

// Where the screen is narrow the noise goes first, then one time: the change tells of both.
Grid grid_for(const TableStyle& style) {
  constexpr std::array<int, kReason> kPriorities{0, 0, 0, 2, 1, 0, 3};
  std::vector<GridColumn> columns;
  for (std::size_t i = 0; i < kReason; ++i) {
    columns.push_back({header()[i], header()[i], kPriorities[i], is_number(i)});
  }
  return {std::move(columns), style.width, style.colour};
}

std::string as_text(const CompareReport& report, const TableStyle& style) {
  const bool with_scenario = several_scenarios(report);
  Grid grid = grid_for(style);
  for (const ComparedRow& row : report.rows) {
    grid.widen(cells_of(line_of(row, with_scenario), ""));
  }
  grid.fit();
  std::string out = grid.header();
  std::int64_t rows = 0;  // so far, of one reason
  for (std::size_t i = 0; i < report.rows.size(); ++i) {
    const ComparedRow& row = report.rows[i];
    const Line line = line_of(row, with_scenario);
    out += grid.line(cells_of(line, colour_of(row.change)));
    ++rows;
    const bool more = i + 1 < report.rows.size() && report.rows[i + 1].reason == row.reason;
    if (more) {
      continue;
    }
    if (!line[kReason].empty()) {
      const std::string of_rows = rows > 1 ? fmt::format("these {} rows: ", rows) : "";
      out += wrapped(of_rows + line[kReason], style.width, 4);
    }
    rows = 0;
  }
  out +=
      '\n' + wrapped(fmt::format("{}: {}", outcome(report.exit), summary(report)), style.width, 0);
  for (const std::string& warning : report.warnings) {
    out += wrapped("warning: " + one_line(warning), style.width, 0);
  }
  return out + hidden_note(grid);
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

std::string render_compare(const CompareReport& report, bool markdown, const TableStyle& style) {
  return markdown ? as_markdown(report) : as_text(report, style);
}

}  // namespace lora_bench
