#include "scenario/reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "scenario/schema.h"

namespace lora_bench {
namespace {

constexpr std::size_t kMaxItems = 65536;

bool is_word(const std::string& text) {
  constexpr std::string_view kExtra = "._+:=-";
  return !text.empty() && text.size() <= 128 && text.front() != '-' &&
         std::all_of(text.begin(), text.end(), [&](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  kExtra.find(c) != std::string_view::npos;
         });
}

}  // namespace

void Reader::complain(const Value& value) const {
  complain(value, fmt::format("is {}", describe(value)));
}

void Reader::complain(const Value& value, const std::string& what) const {
  diagnostics_.add(value.where, fmt::format("'{}' {}", path_, what), allowed_for(value));
}

std::string Reader::allowed_for(const Value& value) const {
  const bool list_for_one = &value == &value_ && value.kind == Value::Kind::kList;
  return swept_ && list_for_one
             ? fmt::format("{}; for several values use sweep: {{{}: [...]}}", allowed_, path_)
             : allowed_;
}

std::optional<std::int64_t> Reader::integer_of(const Value& value, std::int64_t least,
                                               std::int64_t most) const {
  if (value.kind == Value::Kind::kScalar && !value.quoted) {
    const auto number = integer_in(value.text);
    if (number && *number >= least && *number <= most) {
      return number;
    }
  }
  complain(value);
  return std::nullopt;
}

std::optional<double> Reader::real_of(const Value& value, double least, double most) const {
  if (value.kind == Value::Kind::kScalar && !value.quoted) {
    const auto number = real_in(value.text);
    if (number && *number >= least && *number <= most) {
      return number;
    }
  }
  complain(value);
  return std::nullopt;
}

std::optional<double> Reader::share_of(const Value& value, double most) const {
  if (value.kind == Value::Kind::kScalar && !value.quoted) {
    const auto share = share_in(value.text);
    if (share && *share >= 0 && *share <= most) {
      return share;
    }
  }
  complain(value);
  return std::nullopt;
}

std::optional<std::string> Reader::word_of(const Value& value) const {
  if (value.kind == Value::Kind::kScalar && is_word(value.text)) {
    return value.text;
  }
  complain(value);
  return std::nullopt;
}

std::optional<std::string> Reader::one_of(const std::vector<std::string>& names) const {
  const bool scalar = value_.kind == Value::Kind::kScalar;
  if (scalar && std::ranges::find(names, value_.text) != names.end()) {
    return value_.text;
  }
  diagnostics_.add(value_.where, fmt::format("'{}' is {}", path_, describe(value_)),
                   allowed_for(value_), scalar ? nearest(value_.text, names) : "");
  return std::nullopt;
}

void Reader::choice(std::string& target, const std::vector<std::string>& names) const {
  target = one_of(names).value_or(target);
}

void Reader::one_or_list(const std::function<void(const Value&)>& take) const {
  if (value_.kind != Value::Kind::kList) {
    take(value_);
    return;
  }
  if (value_.items.size() > kMaxItems) {
    complain(value_, fmt::format("has {} items", value_.items.size()));
    return;
  }
  for (const Value& item : value_.items) {
    take(item);
  }
}

void Reader::integer(std::int64_t& target, std::int64_t least, std::int64_t most) const {
  target = integer_of(value_, least, most).value_or(target);
}

void Reader::seed(std::uint64_t& target) const {
  if (value_.kind == Value::Kind::kScalar && !value_.quoted) {
    if (const auto number = unsigned_in(value_.text)) {
      target = *number;
      return;
    }
  }
  complain(value_);
}

void Reader::real(double& target, double least, double most) const {
  target = real_of(value_, least, most).value_or(target);
}

void Reader::share(double& target, double most) const {
  target = share_of(value_, most).value_or(target);
}

void Reader::optional_real(std::optional<double>& target, double least, double most) const {
  target = real_of(value_, least, most);
}

void Reader::optional_share(std::optional<double>& target, double most) const {
  target = share_of(value_, most);
}

void Reader::boolean(bool& target) const {
  if (value_.kind == Value::Kind::kScalar && !value_.quoted &&
      (value_.text == "true" || value_.text == "false")) {
    target = value_.text == "true";
    return;
  }
  complain(value_);
}

void Reader::word(std::string& target) const { target = word_of(value_).value_or(target); }

void Reader::text(std::string& target) const {
  if (value_.kind == Value::Kind::kScalar) {
    target = value_.text;
    return;
  }
  complain(value_);
}

void Reader::words(std::vector<std::string>& target) const { words(target, nullptr); }

void Reader::words(std::vector<std::string>& target, const CheckWord& check) const {
  std::vector<std::string> words;
  one_or_list([&](const Value& item) {
    auto word = word_of(item);
    if (!word) {
      return;
    }
    try {
      if (check) {
        check(*word);
      }
    } catch (const UsageError& error) {
      for (const Diagnostic& why : error.diagnostics()) {
        diagnostics_.add(item.where, why.what, why.allowed, why.suggestion);
      }
    }
    words.push_back(std::move(*word));
  });
  target = std::move(words);
}

void Reader::integers(std::vector<std::int64_t>& target, std::int64_t least,
                      std::int64_t most) const {
  std::vector<std::int64_t> numbers;
  one_or_list([&](const Value& item) {
    if (const auto number = integer_of(item, least, most)) {
      numbers.push_back(*number);
    }
  });
  target = std::move(numbers);
}

void Reader::lists(std::vector<std::vector<std::int64_t>>& target, std::int64_t least,
                   std::int64_t most) const {
  if (value_.kind != Value::Kind::kList || value_.items.size() > kMaxItems) {
    complain(value_);
    return;
  }
  target.clear();
  for (const Value& list : value_.items) {
    if (list.kind != Value::Kind::kList) {
      complain(list);
      return;
    }
    target.emplace_back();
    for (const Value& item : list.items) {
      target.back().push_back(integer_of(item, least, most).value_or(least));
    }
  }
}

}  // namespace lora_bench
