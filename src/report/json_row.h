#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "report/row.h"

namespace lora_bench {

// The JSON of one line of a results file, without the newline. Not-a-number and infinity become
// null, bytes that are not UTF-8 the replacement character.
[[nodiscard]] std::string to_json_line(const Row& row);
[[nodiscard]] std::string to_json_line(const Context& context);

[[nodiscard]] bool is_json(const std::string& text);

// The inverse. A key of the wrong type throws UsageError without a place; keys that this version
// does not know are appended to `unknown`.
[[nodiscard]] Row row_from_json(const nlohmann::json& json, std::vector<std::string>& unknown);
[[nodiscard]] Context context_from_json(const nlohmann::json& json,
                                        std::vector<std::string>& unknown);

}  // namespace lora_bench
