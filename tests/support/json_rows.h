#pragma once

#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "support/process.h"

namespace lora_bench::test {

// The rows of a results file as they stand in it.
inline std::vector<nlohmann::json> rows_of(const std::string& file) {
  std::vector<nlohmann::json> rows;
  const std::string text = read_file(file);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    const nlohmann::json line = nlohmann::json::parse(text.substr(begin, end - begin));
    if (line["kind"] == "row") {
      rows.push_back(line);
    }
    begin = end + 1;
  }
  return rows;
}

// The text of a results file without what tells that a row was changed.
inline std::string unsealed(const std::string& text) {
  return std::regex_replace(text, std::regex(R"(,"seal":"[0-9a-f]*"|,"sealed":true)"), "");
}

}  // namespace lora_bench::test
