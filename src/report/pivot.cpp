#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/error.h"
#include "report/columns.h"
#include "report/screen.h"
#include "report/sink.h"

namespace lora_bench {
namespace {

// What tells measurements apart; a repeat of the same measurement differs in none of these.
constexpr std::array<std::string_view, 5> kIdentity{"scenario", "backend", "cache", "mode", "case"};

void check_key(const std::vector<Row>& rows, const std::string& key) {
  std::vector<std::string> known;
  for (const Column& column : columns()) {
    known.push_back(column.key);
  }
  std::set<std::string> swept;
  for (const Row& row : rows) {
    for (const auto& [name, value] : row.id.point) {
      swept.insert(name);
    }
  }
  known.insert(known.end(), swept.begin(), swept.end());
  if (std::find(known.begin(), known.end(), key) == known.end()) {
    Diagnostic diagnostic;
    diagnostic.what = fmt::format("pivot: unknown key '{}'", key);
    diagnostic.allowed = "a column of `lora-bench list metrics`";
    diagnostic.allowed +=
        swept.empty() ? "" : fmt::format(", or a swept key: {}", fmt::join(swept, ", "));
    const auto last_word = std::find_if(swept.begin(), swept.end(), [&](const std::string& name) {
      return name.ends_with("." + key);
    });
    diagnostic.suggestion = last_word != swept.end() ? *last_word : nearest(key, known);
    throw UsageError({diagnostic});
  }
}

const Column& value_column(const std::string& value) {
  const Column* column = find_column(value);
  if (column == nullptr) {
    check_key({}, value);
  }
  if (column->type != CellType::kCount && column->type != CellType::kFigure) {
    throw UsageError(fmt::format("pivot: --value must be a number, '{}' is text", value));
  }
  return *column;
}

std::optional<double> number(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional(value)
                                                                  : std::nullopt;
}

// Numbers in ascending order before texts, texts as they came.
std::vector<std::string> labels(const std::vector<Row>& rows, const std::string& key) {
  std::vector<std::string> found;
  for (const Row& row : rows) {
    const std::string text = file_text(cell_of(row, key));
    if (std::find(found.begin(), found.end(), text) == found.end()) {
      found.push_back(text);
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const std::string& a, const std::string& b) {
    const std::optional<double> left = number(a);
    const std::optional<double> right = number(b);
    return left && right ? *left < *right : left.has_value() && !right.has_value();
  });
  return found;
}

// Keys in which rows differ, the cheapest to filter by first.
std::vector<std::string> varying_keys(const std::vector<const Row*>& rows) {
  std::vector<std::string> keys(kIdentity.begin(), kIdentity.end() - 1);
  for (const Row* row : rows) {
    for (const auto& [key, value] : row->id.point) {
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
        keys.push_back(key);
      }
    }
  }
  keys.emplace_back("layer");
  const auto same = [&](const std::string& key) {
    return std::all_of(rows.begin(), rows.end(), [&](const Row* row) {
      return cell_of(*row, key) == cell_of(*rows.front(), key);
    });
  };
  keys.erase(std::remove_if(keys.begin(), keys.end(), same), keys.end());
  if (keys.empty() && !same("case")) {
    keys.emplace_back("case");
  }
  return keys;
}

struct Pivot {
  std::vector<std::vector<std::string>> lines;  // header first
  bool has_repeats = false;
};

std::string median_text(const Column& column, const std::vector<const Row*>& rows) {
  std::vector<double> values;
  for (const Row* row : rows) {
    const Cell cell = column.get(*row);
    if (std::holds_alternative<double>(cell)) {
      values.push_back(std::get<double>(cell));
    } else if (std::holds_alternative<std::int64_t>(cell)) {
      values.push_back(static_cast<double>(std::get<std::int64_t>(cell)));
    }
  }
  if (values.empty()) {
    return "-";
  }
  if (values.size() == 1) {
    return screen_text(column, column.get(*rows.front()));
  }
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return screen_text(column,
                     values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2);
}

std::string cell_text(const Column& column, const std::vector<const Row*>& rows,
                      const std::string& place) {
  if (rows.empty()) {
    return "";
  }
  const std::vector<std::string> varying = varying_keys(rows);
  if (!varying.empty()) {
    throw UsageError(
        fmt::format("pivot: {} rows fall in the cell {}; they differ in {}: choose with --filter",
                    rows.size(), place, fmt::join(varying, ", ")));
  }
  for (const Row* row : rows) {
    if (row->status != Status::kPassed) {
      return std::string(name(row->status));
    }
  }
  return median_text(column, rows);
}

Pivot make_pivot(const std::vector<Row>& rows, const std::string& down, const std::string& across,
                 const Column& column) {
  std::map<std::pair<std::string, std::string>, std::vector<const Row*>> cells;
  for (const Row& row : rows) {
    cells[{file_text(cell_of(row, down)), file_text(cell_of(row, across))}].push_back(&row);
  }
  const std::vector<std::string> across_labels = labels(rows, across);
  Pivot pivot;
  pivot.lines.push_back({fmt::format("{} \\ {}", down, across)});
  pivot.lines.front().insert(pivot.lines.front().end(), across_labels.begin(), across_labels.end());
  for (const std::string& label : labels(rows, down)) {
    std::vector<std::string> line{label};
    for (const std::string& other : across_labels) {
      const std::vector<const Row*>& inside = cells[{label, other}];
      line.push_back(
          cell_text(column, inside, fmt::format("{}={}, {}={}", down, label, across, other)));
      pivot.has_repeats = pivot.has_repeats || inside.size() > 1;
    }
    pivot.lines.push_back(std::move(line));
  }
  return pivot;
}

}  // namespace

std::string render_pivot(const std::vector<Row>& rows, const std::string& down,
                         const std::string& across, const std::string& value, bool markdown) {
  check_key(rows, down);
  check_key(rows, across);
  const Column& column = value_column(value);
  const Pivot pivot = make_pivot(rows, down, across, column);
  std::string text = column.key;
  text += column.unit.empty() || column.unit == "1" ? "" : fmt::format(" ({})", column.unit);
  text += pivot.has_repeats ? ", median of repeats" : "";
  text += markdown ? "\n\n" : "\n";
  return text + (markdown ? markdown_table(pivot.lines) : aligned_table(pivot.lines));
}

}  // namespace lora_bench
