#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "core/units.h"
#include "report/columns.h"

namespace lora_bench {
namespace {

std::string shortest(double value) {
  if (std::isnan(value)) {
    return "";
  }
  std::array<char, 32> buffer{};
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return std::string(buffer.data(), end);
}

// Three or four significant digits, and never an exponent below a million.
std::string rounded(double value) {
  if (std::isnan(value)) {
    return "";
  }
  const double size = std::abs(value);
  if (size >= 1e6) {
    return fmt::format("{:.3g}", value);
  }
  const int decimals = size >= 100 ? 0 : size >= 10 ? 1 : size >= 0.1 || size == 0 ? 2 : 4;
  return fmt::format("{:.{}f}", value, decimals);
}

constexpr std::int64_t kFirstPrefixed = 10000;

std::string metric_prefix(double value) {
  if (!(std::abs(value) >= kFirstPrefixed) || !std::isfinite(value)) {
    return rounded(value);
  }
  constexpr std::array<char, 4> kPrefixes{'k', 'M', 'G', 'T'};
  std::size_t prefix = 0;
  value /= 1e3;
  while (std::abs(value) >= 1e3 && prefix + 1 < kPrefixes.size()) {
    value /= 1e3;
    ++prefix;
  }
  return fmt::format("{:.{}f}{}", value, std::abs(value) >= 100 ? 0 : 1, kPrefixes[prefix]);
}

struct FileText {
  std::string operator()(std::monostate) const { return ""; }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(std::int64_t value) const { return fmt::format("{}", value); }
  std::string operator()(double value) const { return shortest(value); }
  std::string operator()(const std::string& value) const { return value; }
  std::string operator()(const std::vector<std::string>& values) const {
    return fmt::format("{}", fmt::join(values, ","));
  }
  std::string operator()(const std::vector<double>& values) const {
    std::vector<std::string> texts(values.size());
    std::transform(values.begin(), values.end(), texts.begin(), shortest);
    return (*this)(texts);
  }
  std::string operator()(const std::map<std::string, std::string>& pairs) const {
    std::vector<std::string> texts;
    for (const auto& [key, value] : pairs) {
      texts.push_back(fmt::format("{}={}", key, value));
    }
    return (*this)(texts);
  }
};

}  // namespace

std::string file_text(const Cell& cell) { return std::visit(FileText{}, cell); }

std::string screen_text(const Column& column, const Cell& cell) {
  if (std::holds_alternative<double>(cell)) {
    const double value = std::get<double>(cell);
    return column.unit == "1/s" ? metric_prefix(value) : rounded(value);
  }
  if (std::holds_alternative<std::int64_t>(cell) && column.unit == "B") {
    return format_bytes(static_cast<double>(std::get<std::int64_t>(cell)));
  }
  if (std::holds_alternative<std::int64_t>(cell) && column.unit == "1" &&
      std::get<std::int64_t>(cell) >= kFirstPrefixed) {
    return metric_prefix(static_cast<double>(std::get<std::int64_t>(cell)));
  }
  return file_text(cell);
}

}  // namespace lora_bench
