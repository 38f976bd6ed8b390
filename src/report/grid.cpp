#include "report/grid.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "report/screen.h"

namespace lora_bench {
namespace {

constexpr std::size_t kGap = 2;
constexpr std::size_t kNarrowCase = 24;
constexpr std::size_t kNarrowest = 6;

}  // namespace

Grid::Grid(std::vector<GridColumn> columns, int width, bool colour)
    : columns_(std::move(columns)),
      shown_(columns_.size(), true),
      width_(width > 0 ? static_cast<std::size_t>(width) : 0),
      colour_(colour) {
  for (const GridColumn& column : columns_) {
    widths_.push_back(screen_width(column.header));
  }
}

void Grid::widen(const std::vector<GridCell>& cells) {
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    widths_[i] = std::max(widths_[i], screen_width(cells[i].text));
  }
}

std::size_t Grid::total() const {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    sum += shown_[i] ? widths_[i] + (sum == 0 ? 0 : kGap) : 0;
  }
  return sum;
}

bool Grid::too_wide() const { return width_ > 0 && total() > width_; }

void Grid::shorten(std::size_t column, std::size_t least) {
  const std::size_t spare = widths_[column] > least ? widths_[column] - least : 0;
  widths_[column] -= std::min(total() - width_, spare);
}

void Grid::fit() {
  for (std::size_t i = 0; i < columns_.size() && too_wide(); ++i) {
    if (columns_[i].key == "case") {
      shorten(i, kNarrowCase);
    }
  }
  while (too_wide()) {
    std::size_t last = 0;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (shown_[i] && (!shown_[last] || columns_[i].priority >= columns_[last].priority)) {
        last = i;
      }
    }
    if (columns_[last].priority == 0) {
      break;
    }
    shown_[last] = false;
    hidden_.insert(hidden_.begin(), columns_[last].key);
  }
  for (std::size_t i = 0; i < columns_.size() && too_wide(); ++i) {
    if (shown_[i] && !columns_[i].right) {
      shorten(i, kNarrowest);
    }
  }
}

std::string Grid::header() const {
  std::vector<GridCell> cells;
  for (const GridColumn& column : columns_) {
    cells.push_back({column.header});
  }
  return line(cells);
}

// Colour goes around a cell after it is measured, and only where the line is not clipped.
std::string Grid::line(const std::vector<GridCell>& cells) const {
  const bool clip = too_wide();
  std::string line;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    if (!shown_[i]) {
      continue;
    }
    const std::string cell = clipped(cells[i].text, widths_[i]);
    const std::string padding(widths_[i] - screen_width(cell), ' ');
    const std::string_view colour = colour_ && !clip ? cells[i].colour : "";
    line += line.empty() ? "" : std::string(kGap, ' ');
    line += columns_[i].right ? padding : "";
    line.append(colour).append(cell).append(colour.empty() ? "" : kPlainText);
    line += columns_[i].right ? "" : padding;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return (clip ? clipped(line, width_) : line) + '\n';
}

std::string hidden_note(const Grid& grid, const std::string& remedy) {
  return grid.hidden().empty()
             ? ""
             : wrapped(fmt::format("hidden: {} (wider terminal{})", fmt::join(grid.hidden(), ", "),
                                   remedy.empty() ? "" : ", or " + remedy),
                       grid.width(), 0);
}

std::string wrapped(const std::string& text, int width, std::size_t indent) {
  const std::string blanks(indent, ' ');
  const auto columns = static_cast<std::size_t>(std::max(width, 0));
  const std::size_t room = columns == 0        ? std::string::npos
                           : columns <= indent ? 1
                                               : columns - indent;
  std::istringstream words(text);
  std::string out;
  std::string line;
  for (std::string word; words >> word;) {
    word = clipped(word, room);
    if (!line.empty() && screen_width(line) + 1 + screen_width(word) > room) {
      out += blanks + line + '\n';
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return out + blanks + line + '\n';
}

std::string definitions(const std::vector<Definition>& entries, int width) {
  constexpr std::size_t kIndent = 2;
  std::size_t names = 0;
  for (const Definition& entry : entries) {
    names = std::max(names, screen_width(entry.name));
  }
  const std::size_t column = kIndent + names + kGap;
  std::string out;
  for (const Definition& entry : entries) {
    // The name takes the place of the first line's indent.
    const std::string meaning = wrapped(entry.meaning, width, column);
    out += std::string(kIndent, ' ') + entry.name +
           std::string(names - screen_width(entry.name) + kGap, ' ') + meaning.substr(column);
  }
  return out;
}

}  // namespace lora_bench
