#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace lora_bench {

// The whole text as a number, in the C locale whatever the locale is; nothing if it is none.
[[nodiscard]] std::optional<std::int64_t> integer_in(std::string_view text);
[[nodiscard]] std::optional<std::uint64_t> unsigned_in(std::string_view text);
[[nodiscard]] std::optional<double> real_in(std::string_view text);  // finite

// "0.25" or "25%", the way shares are written in scenarios and on the command line.
[[nodiscard]] std::optional<double> share_in(std::string_view text);

}  // namespace lora_bench
