#include "report/text_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/screen.h"

namespace lora_bench {

std::string aligned_table(const std::vector<std::vector<std::string>>& lines) {
  std::vector<std::size_t> widths(lines.front().size());
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      widths[i] = std::max(widths[i], screen_width(line[i]));
    }
  }
  std::string text;
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      text += i == 0 ? "" : "  ";
      text.append(widths[i] - screen_width(line[i]), ' ').append(line[i]);
    }
    text += '\n';
  }
  return text;
}

std::string markdown_table(const std::vector<std::vector<std::string>>& lines) {
  std::string text;
  for (const auto& line : lines) {
    for (const std::string& cell : line) {
      text += fmt::format("| {} ", markdown_cell(cell));
    }
    text += "|\n";
    if (&line == &lines.front()) {
      for (std::size_t i = 0; i < line.size(); ++i) {
        text += "| ---: ";
      }
      text += "|\n";
    }
  }
  return text;
}

}  // namespace lora_bench
