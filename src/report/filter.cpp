#include "report/filter.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "core/error.h"

namespace lora_bench {
namespace {

std::optional<double> parsed_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || text.empty()) {
    return std::nullopt;
  }
  return value;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) {
    return {};
  }
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

std::optional<double> number_of(const Cell& cell) {
  if (std::holds_alternative<std::int64_t>(cell)) {
    return static_cast<double>(std::get<std::int64_t>(cell));
  }
  if (std::holds_alternative<double>(cell)) {
    return std::get<double>(cell);
  }
  return std::holds_alternative<std::string>(cell) ? parsed_number(std::get<std::string>(cell))
                                                   : std::nullopt;
}

bool ordered(std::string_view op) { return op.front() == '<' || op.front() == '>'; }

bool compare_numbers(double left, std::string_view op, double right) {
  if (op == "<") {
    return left < right;
  }
  if (op == "<=") {
    return left <= right;
  }
  if (op == ">") {
    return left > right;
  }
  if (op == ">=") {
    return left >= right;
  }
  return (op == "=") == (left == right);
}

// A list matches if one of its items does.
bool matches_text(const Cell& cell, std::string_view pattern) {
  if (std::holds_alternative<std::vector<std::string>>(cell)) {
    const auto& items = std::get<std::vector<std::string>>(cell);
    return std::any_of(items.begin(), items.end(),
                       [&](const std::string& item) { return glob_matches(pattern, item); });
  }
  return glob_matches(pattern, file_text(cell));
}

void check_key(const std::string& expression, const std::string& key,
               const std::vector<std::string>& swept_keys) {
  if (find_column(key) != nullptr ||
      std::find(swept_keys.begin(), swept_keys.end(), key) != swept_keys.end()) {
    return;
  }
  std::vector<std::string> known = swept_keys;
  for (const Column& column : columns()) {
    known.push_back(column.key);
  }
  Diagnostic diagnostic;
  diagnostic.what = fmt::format("filter '{}': unknown column '{}'", expression, key);
  diagnostic.allowed = "a column of `lora-bench list metrics` or a swept key";
  diagnostic.suggestion = nearest(key, known);
  throw UsageError({diagnostic});
}

void check_value(const std::string& expression, const std::string& key, const std::string& op,
                 bool is_number) {
  const Column* column = find_column(key);
  const bool numeric_column =
      column != nullptr && (column->type == CellType::kCount || column->type == CellType::kFigure);
  if (numeric_column && !is_number) {
    throw UsageError(fmt::format("filter '{}': column '{}' is a number; write {}{}64", expression,
                                 key, key, op));
  }
  if (column != nullptr && !numeric_column && ordered(op)) {
    throw UsageError(fmt::format(
        "filter '{}': column '{}' is not a number; use = or !=, with * and ?", expression, key));
  }
  if (column == nullptr && ordered(op) && !is_number) {
    throw UsageError(fmt::format("filter '{}': '{}' needs a number", expression, op));
  }
}

}  // namespace

bool glob_matches(std::string_view pattern, std::string_view text) {
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t star = std::string_view::npos;
  std::size_t resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

Filter::Filter(const std::vector<std::string>& expressions,
               const std::vector<std::string>& swept_keys) {
  constexpr std::array<std::string_view, 7> kOperators{"!=", ">=", "<=", "==", "=", ">", "<"};
  for (const std::string& expression : expressions) {
    const std::size_t at = expression.find_first_of("=!<>");
    const std::string_view rest =
        at == std::string::npos ? "" : std::string_view(expression).substr(at);
    const auto* op = std::find_if(kOperators.begin(), kOperators.end(), [&](std::string_view o) {
      return rest.substr(0, o.size()) == o;
    });
    if (op == kOperators.end()) {
      throw UsageError(fmt::format(
          "filter '{}': no operator; allowed: COLUMN OP VALUE with = != >= <= > <", expression));
    }
    Term term;
    term.expression = expression;
    term.key = trimmed(std::string_view(expression).substr(0, at));
    term.op = *op == "==" ? "=" : *op;
    term.text = trimmed(rest.substr(op->size()));
    term.number = parsed_number(term.text);
    check_key(expression, term.key, swept_keys);
    check_value(expression, term.key, term.op, term.number.has_value());
    terms_.push_back(std::move(term));
  }
}

void Filter::refuse_results() const {
  for (const Term& term : terms_) {
    const Column* column = find_column(term.key);
    if (column != nullptr && !column->before_run) {
      throw UsageError(fmt::format(
          "filter '{}': '{}' is known only after the run; run with --out FILE.jsonl, then: "
          "lora-bench report FILE.jsonl --filter '{}'",
          term.expression, term.key, term.expression));
    }
  }
}

bool Filter::Term::holds(const Row& row) const {
  const Cell cell = cell_of(row, key);
  const std::optional<double> found = number_of(cell);
  if (found && number) {
    return compare_numbers(*found, op, *number);
  }
  return !ordered(op) && matches_text(cell, text) == (op == "=");
}

bool case_selected(const std::vector<std::string>& globs, std::string_view id) {
  return globs.empty() || std::any_of(globs.begin(), globs.end(), [&](const std::string& glob) {
           return glob_matches(glob, id);
         });
}

void refuse_unmatched_cases(const std::vector<std::string>& globs,
                            const std::vector<std::string>& ids, std::string_view purpose) {
  for (const std::string& glob : globs) {
    if (std::any_of(ids.begin(), ids.end(),
                    [&](const std::string& id) { return glob_matches(glob, id); })) {
      continue;
    }
    std::string text = fmt::format("no case is left to {}: --case {} matches none of {}", purpose,
                                   glob, ids.size());
    if (const std::string near = nearest(glob, ids); !near.empty()) {
      text += fmt::format("; did you mean '{}'?", near);
    }
    throw UsageError(text);
  }
}

bool Filter::matches(const Row& row) const {
  return std::all_of(terms_.begin(), terms_.end(),
                     [&](const Term& term) { return term.holds(row); });
}

bool Filter::rules_out(const Row& row, const std::vector<std::string_view>& known) const {
  return std::any_of(terms_.begin(), terms_.end(), [&](const Term& term) {
    const bool is_known = find_column(term.key) == nullptr ||
                          std::find(known.begin(), known.end(), term.key) != known.end();
    return is_known && !term.holds(row);
  });
}

}  // namespace lora_bench
