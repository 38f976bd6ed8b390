#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scenario/settings.h"

namespace lora_bench {

// A sweep as a tree. A leaf is one field with its values; an inner node multiplies or zips its
// parts.
struct Sweep {
  enum class Kind : std::uint8_t { kField, kProduct, kZip };
  Kind kind = Kind::kProduct;
  std::string label = {};  // for messages: the field, "product" or "zip"
  Location where = {};
  const Field* field = nullptr;           // of a leaf
  std::vector<const Value*> values = {};  // of a leaf
  std::vector<Sweep> parts = {};          // of an inner node
};

using Assignment = std::pair<const Field*, const Value*>;

struct Point {
  std::string name;  // of an entry of `cases`, else empty
  Location where;
  std::vector<Assignment> own;    // what the entry of `cases` sets
  std::vector<Assignment> swept;  // in the order of the sweep
};

// The tree of a `sweep:` value without its `pinned` fields.
[[nodiscard]] Sweep read_sweep(const Value& value, const std::set<std::string>& pinned,
                               const Fields& fields, Diagnostics& diagnostics);

// Points that the tree has; nothing when they are more than int64 holds.
[[nodiscard]] std::optional<std::int64_t> count_points(const Sweep& sweep);

// All points of the tree, the last part of a product running first.
[[nodiscard]] std::vector<std::vector<Assignment>> sweep_points(const Sweep& sweep);

// The fields of the tree in its order.
[[nodiscard]] std::vector<std::string> swept_fields(const Sweep& sweep);

// How the ids of a scenario name their fields: by the last part of the path, or by the whole path
// where two swept fields share it.
class CaseNamer {
 public:
  explicit CaseNamer(const std::vector<std::string>& fields_in_ids);

  // "qkv-decode8-rank16": words of model, layers, op, dtype, skew and order alone, numbers behind
  // their field, anything else as field=value.
  [[nodiscard]] std::string id(const Point& point, const std::string& fallback) const;

 private:
  [[nodiscard]] std::string part(const Assignment& assignment) const;
  std::map<std::string, std::string> short_names_;
};

// Swept fields and their values as text.
[[nodiscard]] std::map<std::string, std::string> point_of(const Point& point);

}  // namespace lora_bench
