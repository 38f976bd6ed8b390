#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
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

// How deeply objects and lists lie in each other.
[[nodiscard]] std::size_t deepest_nesting(std::string_view json);

// The value of a JSON text, discarded where it is none. `twice` is set to a key that an object has
// twice, else "": JSON leaves open which of the two counts.
[[nodiscard]] nlohmann::json parse_keys_once(std::string_view json, std::string& twice);

// A seal tells that a line of a results file was changed after it was written. It is no signature:
// who rewrites a line can seal it anew, as this tool does.

// The object of one line with the seal of its text as its last key.
[[nodiscard]] std::string with_seal(const std::string& line);

enum class Seal : std::uint8_t { kNone, kBroken, kWhole };
[[nodiscard]] Seal seal_of_line(std::string_view line);

// The first line of a file whose rows are sealed says so, or taking all seals off would hide an
// edit.
[[nodiscard]] std::string saying_sealed(const std::string& context_line);
constexpr const char* kSealKey = "seal";
constexpr const char* kSealedKey = "sealed";

}  // namespace lora_bench
