#include "report/columns.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "report/screen.h"

namespace lora_bench {
namespace {

bool is_number(CellType type) { return type == CellType::kCount || type == CellType::kFigure; }

// Most keys end in their unit, which a slip of the first word should not have to match.
std::string nearest_column(const std::string& key) {
  std::vector<std::string> known;
  std::vector<std::string> first_words;
  for (const Column& column : columns()) {
    known.push_back(column.key);
    first_words.push_back(column.key.substr(0, column.key.find('_')));
  }
  if (std::string whole = nearest(key, known); !whole.empty()) {
    return whole;
  }
  const auto word = std::find(first_words.begin(), first_words.end(), nearest(key, first_words));
  return word == first_words.end()
             ? ""
             : known[static_cast<std::size_t>(std::distance(first_words.begin(), word))];
}

[[noreturn]] void refuse(const std::string& key) {
  Diagnostic diagnostic;
  diagnostic.what = fmt::format("unknown column '{}'", key);
  diagnostic.allowed = "a column of `lora-bench list metrics` or a swept key";
  diagnostic.suggestion = nearest_column(key);
  throw UsageError({diagnostic});
}

View view_of(const Column& column) {
  return {column.key, column.header, column.priority, is_number(column.type), &column};
}

}  // namespace

std::string View::text(const Row& row) const {
  return one_line(column != nullptr ? screen_text(*column, column->get(row))
                                    : file_text(cell_of(row, key)));
}

std::vector<View> choose_views(const std::vector<Row>& rows, const std::vector<std::string>& keys,
                               std::string_view rank_by) {
  std::vector<View> views;
  for (const std::string& key : keys) {
    if (const Column* column = find_column(key)) {
      views.push_back(view_of(*column));
    } else if (std::any_of(rows.begin(), rows.end(),
                           [&](const Row& row) { return row.id.point.count(key) > 0; })) {
      views.push_back({key, key, 0, false, nullptr});
    } else {
      refuse(key);
    }
  }
  if (!keys.empty()) {
    return views;
  }
  for (const Column& column : columns()) {
    View view = view_of(column);
    const bool ranks = column.key == rank_by;
    view.priority = ranks ? 0 : view.priority;
    if ((column.in_table || ranks) && std::any_of(rows.begin(), rows.end(), [&](const Row& row) {
          return !view.text(row).empty();
        })) {
      views.push_back(view);
    }
  }
  return views;
}

void check_view_keys(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    if (find_column(key) == nullptr && key.find('.') == std::string::npos) {
      refuse(key);
    }
  }
}

}  // namespace lora_bench
