#pragma once

#include <string>

namespace lora_bench {

// Text inside a cell of a Markdown table: pipes escaped, one line.
[[nodiscard]] std::string markdown_cell(const std::string& text);

}  // namespace lora_bench
