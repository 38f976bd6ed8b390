#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <ostream>
#include <sstream>
#include <utility>

#include "report/screen.h"
#include "report/sink.h"
#include "report/view.h"

namespace lora_bench {
namespace {

constexpr std::size_t kGap = 2;
constexpr std::size_t kNarrowCase = 24;
constexpr std::size_t kNarrowest = 6;

constexpr std::string_view kReset = "\x1b[0m";
constexpr std::string_view kBold = "\x1b[1m";
constexpr std::string_view kGreen = "\x1b[32m";
constexpr std::string_view kYellow = "\x1b[33m";
constexpr std::string_view kRed = "\x1b[31m";

std::string_view colour_of(const View& view, const Row& row) {
  if (view.key == "floor_ratio" && row.floor_ratio) {
    return *row.floor_ratio <= 1.5 ? kGreen : *row.floor_ratio <= 3 ? kYellow : kRed;
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
  Table(const std::vector<Row>& rows, const TableStyle& style)
      : rows_(rows), groups_(group_rows(rows)), style_(style) {
    views_ = choose_views(rows, style.columns);
    const bool timed = std::any_of(views_.begin(), views_.end(),
                                   [](const View& view) { return view.key == "time_us"; });
    for (const ScenarioGroup& scenario : groups_) {
      for (const CaseGroup& group : scenario.cases) {
        has_best_ = has_best_ || (timed && best_of(group) != nullptr);
      }
    }
    for (const View& view : views_) {
      std::size_t width = screen_width(view.header);
      for (const ScenarioGroup& scenario : groups_) {
        for (const CaseGroup& group : scenario.cases) {
          for (const Row* row : group) {
            width = std::max(width, screen_width(text(view, *row, best_of(group) == row)));
          }
        }
      }
      widths_.push_back(width);
    }
    fit();
  }

  std::string render() const {
    std::string out;
    for (const ScenarioGroup& scenario : groups_) {
      render(scenario, out);
      out += '\n';
    }
    add_line(count_by_status(rows_) + (has_best_ ? "; * = best backend of its case" : ""), "", out);
    for (const std::string& warning : count_by_warning(rows_)) {
      add_line("warning: " + warning, kYellow, out);
    }
    if (!hidden_.empty()) {
      add_wrapped(
          fmt::format("hidden: {} (wider terminal, or --columns)", fmt::join(hidden_, ", ")), out);
    }
    return out;
  }

 private:
  std::string text(const View& view, const Row& row, bool best) const {
    std::string cell = view.text(row);
    if (view.key == "time_us" && has_best_) {
      cell += best ? '*' : ' ';
    }
    return cell;
  }

  std::size_t total() const {
    return std::accumulate(widths_.begin(), widths_.end(), kGap * (widths_.size() - 1));
  }

  void shrink(std::size_t column, std::size_t least) {
    const std::size_t excess = total() - static_cast<std::size_t>(style_.width);
    const std::size_t spare = widths_[column] > least ? widths_[column] - least : 0;
    widths_[column] -= std::min(excess, spare);
  }

  // Shorten long ids, then leave columns out, then shorten what must stay; a terminal narrower than
  // even that clips the line.
  void fit() {
    if (style_.width <= 0) {
      return;
    }
    const auto wide = [&] { return total() > static_cast<std::size_t>(style_.width); };
    for (std::size_t i = 0; i < views_.size() && wide(); ++i) {
      if (views_[i].key == "case") {
        shrink(i, kNarrowCase);
      }
    }
    while (wide()) {
      const auto last =
          std::max_element(views_.rbegin(), views_.rend(),
                           [](const View& a, const View& b) { return a.priority < b.priority; });
      if (last->priority == 0) {
        break;
      }
      const auto at = std::distance(views_.begin(), last.base()) - 1;
      hidden_.insert(hidden_.begin(), last->key);
      views_.erase(views_.begin() + at);
      widths_.erase(widths_.begin() + at);
    }
    for (std::size_t i = 0; i < views_.size() && wide(); ++i) {
      if (!views_[i].right) {
        shrink(i, kNarrowest);
      }
    }
  }

  void add_line(const std::string& line, std::string_view colour, std::string& out) const {
    const std::string shown =
        style_.width > 0 ? clipped(line, static_cast<std::size_t>(style_.width)) : line;
    if (style_.colour && !colour.empty()) {
      out.append(colour).append(shown).append(kReset);
    } else {
      out += shown;
    }
    out += '\n';
  }

  void add_wrapped(const std::string& text, std::string& out) const {
    std::istringstream words(text);
    std::string line;
    for (std::string word; words >> word;) {
      if (!line.empty() && line.size() + 1 + word.size() > static_cast<std::size_t>(style_.width)) {
        add_line(line, "", out);
        line.clear();
      }
      line += (line.empty() ? "" : " ") + word;
    }
    add_line(line, "", out);
  }

  // Cells with their padding; colour goes around a cell after it is measured, and only where the
  // line is not clipped.
  template <class CellText, class CellColour>
  void add_cells(CellText&& cell_text, CellColour&& cell_colour, std::string& out) const {
    const bool clip = style_.width > 0 && total() > static_cast<std::size_t>(style_.width);
    std::string line;
    for (std::size_t i = 0; i < views_.size(); ++i) {
      const std::string cell = clipped(cell_text(views_[i]), widths_[i]);
      const std::string padding(widths_[i] - screen_width(cell), ' ');
      const std::string_view colour = style_.colour && !clip ? cell_colour(views_[i]) : "";
      line += i == 0 ? "" : std::string(kGap, ' ');
      line += views_[i].right ? padding : "";
      line.append(colour).append(cell).append(colour.empty() ? "" : kReset);
      line += views_[i].right ? "" : padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    if (clip) {
      line = clipped(line, static_cast<std::size_t>(style_.width));
    }
    out += line + '\n';
  }

  void render(const ScenarioGroup& scenario, std::string& out) const {
    add_line(scenario.name + (scenario.settings.empty() ? "" : ": " + scenario.settings), kBold,
             out);
    add_cells([](const View& view) { return view.header; },
              [](const View&) -> std::string_view { return ""; }, out);
    const bool spaced = std::any_of(scenario.cases.begin(), scenario.cases.end(),
                                    [](const CaseGroup& group) { return group.size() > 1; });
    for (const CaseGroup& group : scenario.cases) {
      if (spaced) {
        out += '\n';
      }
      const Row* best = best_of(group);
      for (const Row* row : group) {
        add_cells([&](const View& view) { return text(view, *row, row == best); },
                  [&](const View& view) { return colour_of(view, *row); }, out);
        for (const std::string& note : notes_of(*row)) {
          add_line("    " + note, "", out);
        }
      }
    }
  }

  const std::vector<Row>& rows_;
  std::vector<ScenarioGroup> groups_;
  const TableStyle& style_;
  bool has_best_ = false;
  std::vector<View> views_;
  std::vector<std::size_t> widths_;
  std::vector<std::string> hidden_;  // keys of the columns left out, the most wanted first
};

class TableSink : public Sink {
 public:
  TableSink(std::ostream& out, TableStyle style) : out_(out), style_(std::move(style)) {}

  void begin(const Context& /*context*/) override {}
  void row(const Row& row) override { rows_.push_back(row); }
  void finish() override {
    if (!rows_.empty()) {
      out_ << Table(rows_, style_).render();
    }
  }

 private:
  std::ostream& out_;
  TableStyle style_;
  std::vector<Row> rows_;
};

}  // namespace

std::unique_ptr<Sink> make_table_sink(std::ostream& out, const TableStyle& style) {
  check_view_keys(style.columns);
  return std::make_unique<TableSink>(out, style);
}

}  // namespace lora_bench
