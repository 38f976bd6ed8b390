#pragma once

#include <string>
#include <vector>

namespace lora_bench {

// Lines of as many cells each, the first a header, aligned to the right: as text, as Markdown.
[[nodiscard]] std::string aligned_table(const std::vector<std::vector<std::string>>& lines);
[[nodiscard]] std::string markdown_table(const std::vector<std::vector<std::string>>& lines);

}  // namespace lora_bench
