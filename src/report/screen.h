#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/row.h"

namespace lora_bench {

// Characters on a screen: code points of UTF-8 text.
[[nodiscard]] std::size_t screen_width(std::string_view text);
// At most `width` characters; what is cut shows as "..".
[[nodiscard]] std::string clipped(const std::string& text, std::size_t width);
// One line: newlines become spaces, other control characters '?'.
[[nodiscard]] std::string one_line(std::string_view text);

// Rows of one case, in the order in which they came.
using CaseGroup = std::vector<const Row*>;
struct ScenarioGroup {
  std::string name;
  std::string settings;  // "linear, bf16, weights-cold, graph": what all its rows share
  std::vector<CaseGroup> cases;
};
// With `rank_by` the rows of a case stand the quickest first, those without such a time last.
[[nodiscard]] std::vector<ScenarioGroup> group_rows(const std::vector<Row>& rows,
                                                    std::string_view rank_by = "");

// The time by which rows of a case are ranked, and how well it is known: by "alone_us" the one
// between others, else time_us. A `rank_by` of "" ranks by time_us and leaves rows in their order.
[[nodiscard]] std::optional<double> ranked_us(const Row& row, std::string_view rank_by);
[[nodiscard]] double ranked_noise_us(const Row& row, std::string_view rank_by);
// The column of it: "time_us" or "alone_us".
[[nodiscard]] std::string_view rank_column(std::string_view rank_by);

// Those that passed with a time. A repeat that is wrong, in doubt or contradicts itself stands for
// all of its backend, whatever the others took.
[[nodiscard]] CaseGroup timed_rows(const CaseGroup& rows);

// The timed row with the shortest time, if two backends have some and were timed alike; else null.
[[nodiscard]] const Row* best_of(const CaseGroup& rows, std::string_view rank_by = "");

// "12 rows: 10 PASSED, 2 SKIPPED".
[[nodiscard]] std::string count_by_status(const std::vector<Row>& rows);
// "1 row: throttled: sw_power_cap [decode8 naive]", one line a kind of warning whatever its
// figures, with the first of its rows.
[[nodiscard]] std::vector<std::string> count_by_warning(const std::vector<Row>& rows);
// The sentences below a row: why it is not PASSED, what threshold it missed or left open.
[[nodiscard]] std::vector<std::string> notes_of(const Row& row);

// Lines of as many cells each, the first a header, aligned to the right: as text, as Markdown.
[[nodiscard]] std::string aligned_table(const std::vector<std::vector<std::string>>& lines);
[[nodiscard]] std::string markdown_table(const std::vector<std::vector<std::string>>& lines);

// Text inside a cell of a Markdown table: pipes escaped, one line.
[[nodiscard]] std::string markdown_cell(const std::string& text);

}  // namespace lora_bench
