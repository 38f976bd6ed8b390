#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "scenario/diagnostics.h"

namespace lora_bench {

// A parsed text as plain values that know where they stand. Only yaml_tree.cpp knows the YAML
// library.
struct Value {
  enum class Kind : std::uint8_t { kNull, kScalar, kList, kMap };
  struct Entry;

  Kind kind = Kind::kNull;
  std::string text = {};  // of a scalar
  bool quoted = false;    // a quoted scalar is a string, never a number
  Location where = {};
  std::vector<Value> items = {};  // of a list
  std::vector<Entry> entries;     // of a map, in the order of the text; keys are distinct

  [[nodiscard]] const Value* find(const std::string& key) const;
};

struct Value::Entry {
  std::string key;
  Location where;  // of the key
  Value value;
};

[[nodiscard]] Value make_value(Value::Kind kind, Location where, std::string text = "",
                               bool quoted = false);

constexpr std::int64_t kMaxYamlBytes = 1 << 20;
constexpr std::int64_t kMaxYamlNodes = 100000;  // aliases count as what they stand for
constexpr std::size_t kMaxYamlKeys = 1000;      // of one map
constexpr int kMaxYamlDepth = 32;

// One document. Nothing when the text is no YAML that we take; what is wrong is in `diagnostics`.
// Duplicate keys are reported and the first one kept, so that the rest can still be checked.
[[nodiscard]] std::optional<Value> parse_yaml(const std::string& text, const std::string& file,
                                              Diagnostics& diagnostics);

// "a map", "a list", "empty", "'16'": for "is ..." in messages.
[[nodiscard]] std::string describe(const Value& value);

// The value on one line in a form that does not depend on how it was laid out: 16, [8,16],
// {zipf:1.5}.
[[nodiscard]] std::string canonical(const Value& value);

}  // namespace lora_bench
