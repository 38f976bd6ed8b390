#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "scenario/resolve.h"
#include "scenario/schema.h"

// The kinds of fields that the table of a scenario has: how a value is read, written and described.
namespace lora_bench {

// Where a field lies in a case: a member of a member.
template <typename... Members>
auto at(Members... members) {
  return [=](auto& spec) -> auto& { return (spec.*....*members); };
}

// What a row of the table says where its kind does not.
struct Said {
  std::string allowed = {};                    // instead of what the kind allows
  std::string also = {};                       // behind that
  std::string fallback = {};                   // instead of the value of a case that says nothing
  std::function<bool(const Case&)> when = {};  // see Field::is_said
  std::string instead_of_layer = {};           // see Field
  About about = About::kAnyOp;                 // see Field
  bool alone_in_ids = false;                   // see Field
};

// `read(reader, target, context)` and `text(value)` are those of the kind.
template <typename Place, typename Read, typename Text>
Field field_of(std::string path, std::string type, Place place, const std::string& allowed,
               std::string meaning, Said said, Read read, Text text) {
  const Case plain = default_case();
  Field field;
  field.doc = {std::move(path), std::move(type),
               said.allowed.empty() ? allowed + said.also : said.allowed,
               said.fallback.empty() ? text(place(plain)) : said.fallback, std::move(meaning)};
  field.read = [place, read](const Reader& reader, Case& target, FieldContext& context) {
    read(reader, place(target), context);
  };
  field.text = [place, text](const Case& spec) { return text(place(spec)); };
  field.is_said = said.when ? std::move(said.when)
                            : [place, text, unsaid = text(place(plain))](const Case& spec) {
                                return text(place(spec)) != unsaid;
                              };
  field.instead_of_layer = std::move(said.instead_of_layer);
  field.about = said.about;
  field.alone_in_ids = said.alone_in_ids;
  return field;
}

constexpr auto kPlainText = [](const auto& value) { return fmt::format("{}", value); };
constexpr auto kListText = [](const auto& values) {
  return fmt::format("[{}]", fmt::join(values, ", "));
};
constexpr auto kOptionalText = [](const std::optional<double>& value) {
  return value ? fmt::format("{}", *value) : "none";
};

template <typename Place>
Field integer(std::string path, Place place, std::int64_t least, std::int64_t most,
              std::string meaning, Said said = {}) {
  return field_of(
      std::move(path), "integer", place, fmt::format("an integer from {} to {}", least, most),
      std::move(meaning), std::move(said),
      [least, most](const Reader& reader, std::int64_t& target, FieldContext&) {
        reader.integer(target, least, most);
      },
      kPlainText);
}

template <typename Place>
Field real(std::string path, Place place, double least, double most, std::string meaning,
           Said said = {}) {
  return field_of(
      std::move(path), "number", place, fmt::format("a number from {} to {}", least, most),
      std::move(meaning), std::move(said),
      [least, most](const Reader& reader, double& target, FieldContext&) {
        reader.real(target, least, most);
      },
      kPlainText);
}

template <typename Place>
Field share(std::string path, Place place, std::string meaning, Said said = {}) {
  return field_of(
      std::move(path), "share", place, "a share from 0 to 1, or 0% to 100%", std::move(meaning),
      std::move(said),
      [](const Reader& reader, double& target, FieldContext&) { reader.share(target, 1); },
      kPlainText);
}

template <typename Place>
Field boolean(std::string path, Place place, std::string meaning, Said said = {}) {
  return field_of(
      std::move(path), "boolean", place, "true, false", std::move(meaning), std::move(said),
      [](const Reader& reader, bool& target, FieldContext&) { reader.boolean(target); },
      kPlainText);
}

template <typename Place>
Field word(std::string path, Place place, const std::string& allowed, std::string meaning,
           Said said = {}) {
  return field_of(
      std::move(path), "word", place, allowed, std::move(meaning), std::move(said),
      [](const Reader& reader, std::string& target, FieldContext&) { reader.word(target); },
      kPlainText);
}

// One of the names of an enumeration; of `some` of them where these are given.
template <typename Place>
Field choice(std::string path, Place place, std::string meaning, Said said = {},
             std::vector<std::string> some = {}) {
  using Enum = std::remove_cvref_t<decltype(place(std::declval<Case&>()))>;
  if (some.empty()) {
    some.assign(EnumNames<Enum>::kNames.begin(), EnumNames<Enum>::kNames.end());
  }
  const std::string allowed = fmt::format("{}", fmt::join(some, ", "));
  return field_of(
      std::move(path), "word", place, allowed, std::move(meaning), std::move(said),
      [some](const Reader& reader, Enum& target, FieldContext&) { reader.choice(target, some); },
      [](Enum value) { return std::string(name(value)); });
}

}  // namespace lora_bench
