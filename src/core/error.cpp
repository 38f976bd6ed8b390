#include "core/error.h"

#include <fmt/format.h>
#include <algorithm>
#include <numeric>
#include <string_view>
#include <system_error>

namespace lora_bench {

namespace {

std::size_t edit_distance(const std::string& left, const std::string& right) {
  std::vector<std::size_t> previous(right.size() + 1);
  std::iota(previous.begin(), previous.end(), std::size_t{0});
  std::vector<std::size_t> current(right.size() + 1);
  for (std::size_t i = 0; i < left.size(); ++i) {
    current[0] = i + 1;
    for (std::size_t j = 0; j < right.size(); ++j) {
      const std::size_t replace = previous[j] + (left[i] == right[j] ? 0 : 1);
      current[j + 1] = std::min({previous[j + 1] + 1, current[j] + 1, replace});
    }
    std::swap(previous, current);
  }
  return previous.back();
}

std::string join_lines(const std::vector<Diagnostic>& diagnostics) {
  std::string text;
  for (const Diagnostic& diagnostic : diagnostics) {
    if (!text.empty()) {
      text += '\n';
    }
    text += to_string(diagnostic);
  }
  return text;
}

}  // namespace

std::string to_string(const Diagnostic& diagnostic) {
  std::string text;
  if (!diagnostic.where.file.empty()) {
    text = diagnostic.where.file;
    if (diagnostic.where.line > 0) {
      text += fmt::format(":{}:{}", diagnostic.where.line, diagnostic.where.column);
    }
    text += ": ";
  }
  text += diagnostic.what;
  if (!diagnostic.allowed.empty()) {
    text += fmt::format("; allowed: {}", diagnostic.allowed);
  }
  if (!diagnostic.suggestion.empty()) {
    text += fmt::format("; did you mean '{}'?", diagnostic.suggestion);
  }
  return text;
}

std::string nearest(const std::string& word, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    if (word.size() >= 3 && candidate.compare(0, word.size(), word) == 0) {
      return candidate;  // cut short
    }
    const std::size_t distance = edit_distance(word, candidate);
    // A distance as long as the candidate itself means that nothing of it was kept.
    if (distance < best_distance && distance < candidate.size()) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

UsageError::UsageError(const std::string& message) : std::runtime_error(message), diagnostics_(1) {
  diagnostics_.front().what = message;
}

UsageError::UsageError(std::vector<Diagnostic> diagnostics)
    : std::runtime_error(join_lines(diagnostics)), diagnostics_(std::move(diagnostics)) {}

std::string why_no_file(const std::filesystem::path& path) {
  std::error_code error;
  const auto is = [](std::string_view what) {
    return std::string(what) +
           ", and only files are read; write what it gives into a file and name that";
  };
  switch (std::filesystem::status(path, error).type()) {
    case std::filesystem::file_type::directory:
      return "it is a folder";
    case std::filesystem::file_type::fifo:
      return is("it is a pipe");
    case std::filesystem::file_type::socket:
      return is("it is a socket");
    case std::filesystem::file_type::block:
    case std::filesystem::file_type::character:
      return is("it is a device");
    default:
      return "";
  }
}

}  // namespace lora_bench
