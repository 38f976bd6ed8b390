#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "report/row.h"

namespace lora_bench {

enum class CellType : std::uint8_t { kFlag, kCount, kFigure, kText, kTexts, kFigures, kPairs };

// Absent, or one value of a column's type.
using Cell =
    std::variant<std::monostate, bool, std::int64_t, double, std::string, std::vector<std::string>,
                 std::vector<double>, std::map<std::string, std::string>>;

// The one place that says what a column is. Table, CSV, JSON lines, Markdown, filters, pivots and
// docs/metrics.md all read it.
struct Column {
  std::string key;     // as in JSON lines and CSV, unit included: "time_us"
  std::string header;  // short, for the table
  std::string unit;    // "us", "B", "1", ""
  std::string meaning;
  std::string formula;    // "" = measured or given
  bool in_table = false;  // shown by default
  int priority = 9;       // when a table is too wide, the largest goes first; 0 = never goes
  CellType type = CellType::kText;
  std::function<Cell(const Row&)> get;
  // For reading a stored row back; the cell is absent or of `type`. Throws UsageError on a value
  // outside an enumeration.
  std::function<void(Row&, const Cell&)> set;
  bool before_run = false;  // known of a case before it runs
};
[[nodiscard]] const std::vector<Column>& columns();
[[nodiscard]] const Column* find_column(std::string_view key);

// Screen form (rounded, aligned by the caller) and file form (shortest text that reads back as the
// same number, '.' decimals whatever the locale). Pairs are "decode=8,rank=16", lists are joined
// by ','; absent and NaN are "".
[[nodiscard]] std::string screen_text(const Column& column, const Cell& cell);
[[nodiscard]] std::string file_text(const Cell& cell);

// A column's value of a row, or the value of a swept key ("adapters.rank"); the column wins.
[[nodiscard]] Cell cell_of(const Row& row, std::string_view key);

// One column as a table shows it: of the registry, or a swept key.
struct View {
  std::string key, header;
  int priority = 0;
  bool right = false;  // numbers
  const Column* column = nullptr;

  [[nodiscard]] std::string text(const Row& row) const;
};

// The columns asked for; with none, the default set and the one that ranks, without those that are
// empty in every row. A
// key that no row has as a swept key is a UsageError that names the nearest.
[[nodiscard]] std::vector<View> choose_views(const std::vector<Row>& rows,
                                             const std::vector<std::string>& keys,
                                             std::string_view rank_by = "");
// The same error as far as it can be told before there are rows: a swept key has a dot, or is
// found later.
void check_view_keys(const std::vector<std::string>& keys);

}  // namespace lora_bench
