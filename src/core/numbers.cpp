#include "core/numbers.h"

#include <charconv>
#include <cmath>

namespace lora_bench {
namespace {

template <typename Number>
std::optional<Number> number_in(std::string_view text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stopped != end) {
    return std::nullopt;
  }
  return number;
}

}  // namespace

std::optional<std::int64_t> integer_in(std::string_view text) {
  return number_in<std::int64_t>(text);
}

std::optional<std::uint64_t> unsigned_in(std::string_view text) {
  return number_in<std::uint64_t>(text);
}

std::optional<double> real_in(std::string_view text) {
  const auto number = number_in<double>(text);
  return number && std::isfinite(*number) ? number : std::nullopt;
}

std::optional<double> share_in(std::string_view text) {
  const bool percent = text.ends_with('%');
  text.remove_suffix(percent ? 1 : 0);
  const auto number = real_in(text);
  return number ? std::optional<double>(*number / (percent ? 100 : 1)) : std::nullopt;
}

}  // namespace lora_bench
