#include "core/units.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

namespace lora_bench {

namespace {

template <std::size_t kCount>
std::string scaled(double value, double step, const std::array<std::string_view, kCount>& units) {
  std::size_t unit = 0;
  while (value >= step && unit + 1 < kCount) {
    value /= step;
    ++unit;
  }
  const int decimals = value >= 100 || unit == 0 ? 0 : 1;
  return fmt::format("{:.{}f} {}", value, decimals, units[unit]);
}

bool plain_word(const std::string& word) {
  return !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-+=./:,@%").find(c) != std::string_view::npos;
  });
}

}  // namespace

std::string shell_quoted(const std::string& word) {
  if (plain_word(word)) {
    return word;
  }
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string format_bytes(double bytes) {
  return scaled<6>(bytes, 1000, {"B", "kB", "MB", "GB", "TB", "PB"});
}

std::string format_figure(double value) {
  return std::abs(value) < 999.5 ? fmt::format("{:.3g}", value) : fmt::format("{:.0f}", value);
}

std::string format_seconds(double seconds) {
  if (seconds >= 60) {
    return fmt::format("{:.0f} min {:02.0f} s",
                       (seconds - static_cast<double>(static_cast<int>(seconds) % 60)) / 60,
                       static_cast<double>(static_cast<int>(seconds) % 60));
  }
  if (seconds >= 1) {
    return fmt::format("{:.1f} s", seconds);
  }
  if (seconds >= 1e-3) {
    return fmt::format("{:.1f} ms", seconds * 1e3);
  }
  return fmt::format("{:.2f} us", seconds * 1e6);
}

std::string counted(std::int64_t count, const std::string& noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::optional<std::int64_t> checked_multiply(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) {
    return std::nullopt;
  }
  return product;
}

std::optional<std::int64_t> checked_add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) {
    return std::nullopt;
  }
  return sum;
}

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
