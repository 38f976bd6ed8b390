#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lora_bench {

// For people: "1.5 MB", "12.3 GB" (SI, decimal), "17.2 us", "3.4 ms".
[[nodiscard]] std::string format_bytes(double bytes);
[[nodiscard]] std::string format_seconds(double seconds);

// "0.145", "12.3", "2215": three significant digits, and no exponent for what is large.
[[nodiscard]] std::string format_figure(double value);

// "1 row", "3 rows".
[[nodiscard]] std::string counted(std::int64_t count, const std::string& noun);

// "'a b'" when the shell would not take the word as it is.
[[nodiscard]] std::string shell_quoted(const std::string& word);

// a * b and a + b for non-negative values; nothing when the result does not fit int64.
[[nodiscard]] std::optional<std::int64_t> checked_multiply(std::int64_t a, std::int64_t b);
[[nodiscard]] std::optional<std::int64_t> checked_add(std::int64_t a, std::int64_t b);

// The whole text as a number, in the C locale whatever the locale is; nothing if it is none.
[[nodiscard]] std::optional<std::int64_t> integer_in(std::string_view text);
[[nodiscard]] std::optional<std::uint64_t> unsigned_in(std::string_view text);
[[nodiscard]] std::optional<double> real_in(std::string_view text);  // finite

// "0.25" or "25%", the way shares are written in scenarios and on the command line.
[[nodiscard]] std::optional<double> share_in(std::string_view text);

}  // namespace lora_bench
