#pragma once

#include <string>
#include <vector>

namespace lora_bench {

// Lines of as many cells each, the first a header, aligned to the right: as text, as Markdown.
[[nodiscard]] std::string aligned_table(const std::vector<std::vector<std::string>>& lines);
[[nodiscard]] std::string markdown_table(const std::vector<std::vector<std::string>>& lines);

// Text inside a cell of a Markdown table: pipes escaped, one line.
[[nodiscard]] std::string markdown_cell(const std::string& text);

}  // namespace lora_bench
