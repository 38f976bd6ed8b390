#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "report/row.h"

namespace lora_bench {

// Absent, flag, count, figure, text.
using Cell = std::variant<std::monostate, bool, std::int64_t, double, std::string>;

// The one place that says what a column is. Table, CSV, JSON lines, Markdown, filters, pivots and
// docs/metrics.md all read it.
struct Column {
  std::string key;     // as in JSON lines and CSV, unit included: "time_us"
  std::string header;  // short, for the table
  std::string unit;    // "us", "B", "1", ""
  std::string meaning;
  std::string formula;    // "" = measured or given
  bool in_table = false;  // shown by default
  std::function<Cell(const Row&)> get;
  std::function<void(Row&, const Cell&)> set;  // for reading a stored row back
};
[[nodiscard]] const std::vector<Column>& columns();
[[nodiscard]] const Column* find_column(std::string_view key);

// Screen form (rounded, aligned by the caller) and file form (full precision, '.' decimals
// whatever the locale).
[[nodiscard]] std::string screen_text(const Column& column, const Cell& cell);
[[nodiscard]] std::string file_text(const Cell& cell);

// `*` any text, `?` any one character; the whole text must match.
[[nodiscard]] bool glob_matches(std::string_view pattern, std::string_view text);

// `rank>=64`, `backend=auto*`, `case=*qkv*`, `status!=PASSED`; throws UsageError that names the
// column nearest to an unknown one. Several filters are and-ed.
class Filter {
 public:
  explicit Filter(const std::vector<std::string>& expressions);
  [[nodiscard]] bool matches(const Row& row) const;

 private:
  struct Term {
    const Column* column;
    std::string op, text;
  };
  std::vector<Term> terms_;
};

}  // namespace lora_bench
