#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lora_bench {

// Ends a colour.
inline constexpr std::string_view kPlainText = "\x1b[0m";

struct GridColumn {
  std::string key, header;
  int priority = 0;  // what is left out first where the screen is narrow; 0 = always shown
  bool right = false;
};

struct GridCell {
  std::string text;
  std::string_view colour = {};  // an escape sequence
};

// Aligned columns on a screen of `width` (0 = unlimited). Long ids are shortened first, then
// columns left out, then what must stay is shortened; a screen narrower than even that clips lines.
class Grid {
 public:
  Grid(std::vector<GridColumn> columns, int width, bool colour);

  // Every line that will be shown, before fit().
  void widen(const std::vector<GridCell>& cells);
  void fit();
  // Lines with their newline; a cell for every column, also for those left out.
  [[nodiscard]] std::string header() const;
  [[nodiscard]] std::string line(const std::vector<GridCell>& cells) const;
  // Keys of the columns left out, the most wanted first.
  [[nodiscard]] const std::vector<std::string>& hidden() const { return hidden_; }
  [[nodiscard]] int width() const { return static_cast<int>(width_); }

 private:
  [[nodiscard]] bool too_wide() const;
  [[nodiscard]] std::size_t total() const;
  void shorten(std::size_t column, std::size_t least);

  std::vector<GridColumn> columns_;
  std::vector<std::size_t> widths_;
  std::vector<bool> shown_;
  std::vector<std::string> hidden_;
  std::size_t width_;
  bool colour_;
};

// "hidden: rank, active (wider terminal)", "" if nothing is; `remedy` is another way to see them.
[[nodiscard]] std::string hidden_note(const Grid& grid, const std::string& remedy = "");

// Words in lines of at most `width` (0 = unlimited), each behind `indent` blanks, with newlines; a
// word longer than a line is clipped.
[[nodiscard]] std::string wrapped(const std::string& text, int width, std::size_t indent);

// "  name   what it means", the meaning wrapped in a column of its own.
struct Definition {
  std::string name, meaning;
};
[[nodiscard]] std::string definitions(const std::vector<Definition>& entries, int width);

}  // namespace lora_bench
