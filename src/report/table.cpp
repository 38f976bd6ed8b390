#include <fmt/format.h>

#include <algorithm>
#include <ostream>
#include <utility>

#include "report/columns.h"
#include "report/grid.h"
#include "report/screen.h"
#include "report/sink.h"

namespace lora_bench {
namespace {

constexpr std::string_view kBold = "\x1b[1m";
constexpr std::string_view kGreen = "\x1b[32m";
constexpr std::string_view kYellow = "\x1b[33m";
constexpr std::string_view kRed = "\x1b[31m";

std::string_view colour_of(const View& view, const Row& row) {
  if (view.key == "floor_ratio" && row.floor.ratio) {
    return *row.floor.ratio <= 1.5 ? kGreen : *row.floor.ratio <= 3 ? kYellow : kRed;
  }
  if (view.key == "status") {
    switch (row.status) {
      case Status::kPassed:
        return kGreen;
      case Status::kSkipped:
      case Status::kMistrusted:
        return kYellow;
      default:
        return kRed;
    }
  }
  return "";
}

class Table {
 public:
  Table(const std::vector<Row>& rows, const std::vector<std::string>& notes,
        const TableStyle& style)
      : rows_(rows),
        notes_(notes),
        groups_(group_rows(rows, style.rank_by)),
        style_(style),
        views_(choose_views(rows, style.columns, style.rank_by)),
        grid_(columns_of(views_), style.width, style.colour) {
    const bool timed = std::any_of(views_.begin(), views_.end(),
                                   [&](const View& view) { return is_ranked(view); });
    for (const ScenarioGroup& scenario : groups_) {
      for (const CaseGroup& group : scenario.cases) {
        has_best_ = has_best_ || (timed && best_of(group, style_.rank_by) != nullptr);
      }
    }
    for (const ScenarioGroup& scenario : groups_) {
      for (const CaseGroup& group : scenario.cases) {
        for (const Row* row : group) {
          grid_.widen(cells(*row, best_of(group, style_.rank_by) == row));
        }
      }
    }
    grid_.fit();
  }

  std::string render() const {
    std::string out;
    for (const ScenarioGroup& scenario : groups_) {
      render(scenario, out);
      out += '\n';
    }
    add_line(count_by_status(rows_) + (has_best_ ? "; * = best backend of its case" : ""), "", out);
    for (const std::string& note : notes_) {
      add_line(note, "", out);
    }
    for (const std::string& warning : count_by_warning(rows_)) {
      add_line("warning: " + warning, kYellow, out);
    }
    return out + hidden_note(grid_, "--columns");
  }

 private:
  static std::vector<GridColumn> columns_of(const std::vector<View>& views) {
    std::vector<GridColumn> columns;
    for (const View& view : views) {
      columns.push_back({view.key, view.header, view.priority, view.right});
    }
    return columns;
  }

  [[nodiscard]] bool is_ranked(const View& view) const {
    return view.key == rank_column(style_.rank_by);
  }

  std::vector<GridCell> cells(const Row& row, bool best) const {
    std::vector<GridCell> cells;
    for (const View& view : views_) {
      const bool marked = is_ranked(view) && has_best_;
      cells.push_back({view.text(row) + (!marked ? "" : best ? "*" : " "), colour_of(view, row)});
    }
    return cells;
  }

  void add_line(const std::string& line, std::string_view colour, std::string& out) const {
    const std::string shown =
        style_.width > 0 ? clipped(line, static_cast<std::size_t>(style_.width)) : line;
    if (style_.colour && !colour.empty()) {
      out.append(colour).append(shown).append(kPlainText);
    } else {
      out += shown;
    }
    out += '\n';
  }

  void render(const ScenarioGroup& scenario, std::string& out) const {
    add_line(scenario.name + (scenario.settings.empty() ? "" : ": " + scenario.settings), kBold,
             out);
    out += grid_.header();
    const bool spaced = std::any_of(scenario.cases.begin(), scenario.cases.end(),
                                    [](const CaseGroup& group) { return group.size() > 1; });
    for (const CaseGroup& group : scenario.cases) {
      if (spaced) {
        out += '\n';
      }
      const Row* best = best_of(group, style_.rank_by);
      for (const Row* row : group) {
        out += grid_.line(cells(*row, row == best));
        for (const std::string& note : notes_of(*row)) {
          add_line("    " + note, "", out);
        }
      }
    }
  }

  const std::vector<Row>& rows_;
  const std::vector<std::string>& notes_;
  std::vector<ScenarioGroup> groups_;
  const TableStyle& style_;
  bool has_best_ = false;
  std::vector<View> views_;
  Grid grid_;
};

class TableSink : public Sink {
 public:
  TableSink(std::ostream& out, TableStyle style) : out_(out), style_(std::move(style)) {}

  void begin(const Context& /*context*/) override {}
  void row(const Row& row) override { rows_.push_back(row); }
  void note(const std::string& sentence) override { notes_.push_back(sentence); }
  void finish() override {
    if (!rows_.empty()) {
      out_ << Table(rows_, notes_, style_).render();
    }
  }

 private:
  std::ostream& out_;
  TableStyle style_;
  std::vector<Row> rows_;
  std::vector<std::string> notes_;
};

}  // namespace

std::unique_ptr<Sink> make_table_sink(std::ostream& out, const TableStyle& style) {
  check_view_keys(style.columns);
  return std::make_unique<TableSink>(out, style);
}

}  // namespace lora_bench
