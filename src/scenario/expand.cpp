#include "scenario/expand.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/units.h"

namespace lora_bench {
namespace {

class SweepReader {
 public:
  SweepReader(const std::set<std::string>& pinned, const Fields& fields, Diagnostics& diagnostics)
      : pinned_(pinned), fields_(fields), diagnostics_(diagnostics) {}

  // A block is a map, or a list of maps that are parts of `parent` one by one.
  void add_blocks(const Value& value, Sweep::Kind kind, const Location& where, Sweep& parent) {
    const std::string label = kind == Sweep::Kind::kZip ? "zip" : "product";
    if (value.kind == Value::Kind::kList && !value.items.empty()) {
      for (const Value& item : value.items) {
        if (item.kind == Value::Kind::kList) {
          diagnostics_.add(item.where, fmt::format("'{}' holds a list", label), "maps of fields");
        } else {
          add_blocks(item, kind, item.where, parent);
        }
      }
      return;
    }
    if (value.kind != Value::Kind::kMap || value.entries.empty()) {
      const bool nothing = value.kind == Value::Kind::kNull || value.kind == Value::Kind::kMap ||
                           value.kind == Value::Kind::kList;
      diagnostics_.add(value.where,
                       nothing ? fmt::format("an empty '{}'", label)
                               : fmt::format("'{}' is {}", label, describe(value)),
                       "a map of fields with lists of values");
      return;
    }
    Sweep block{.kind = kind, .label = label, .where = where};
    add_fields(value, "", block);
    if (kind == Sweep::Kind::kZip) {
      check_lengths(block);
    }
    if (!block.parts.empty()) {
      parent.parts.push_back(std::move(block));
    }
  }

 private:
  void add_fields(const Value& map, const std::string& prefix, Sweep& block) {
    for (const Value::Entry& entry : map.entries) {
      const std::string path = prefix.empty() ? entry.key : prefix + "." + entry.key;
      const Field* field = find_field(fields_, path);
      if (path == "product" || path == "zip") {
        add_blocks(entry.value, path == "zip" ? Sweep::Kind::kZip : Sweep::Kind::kProduct,
                   entry.where, block);
      } else if (field != nullptr) {
        add_field(*field, entry, block);
      } else if (is_group(fields_, path) && entry.value.kind == Value::Kind::kMap) {
        add_fields(entry.value, path, block);
      } else if (is_group(fields_, path)) {
        diagnostics_.add(entry.value.where, fmt::format("'{}' is {}", path, describe(entry.value)),
                         "a map of its fields with lists of values");
      } else {
        diagnostics_.add(entry.where, fmt::format("unknown key '{}'", entry.key),
                         "fields, product, zip", nearest_field(fields_, path));
      }
    }
  }

  void add_field(const Field& field, const Value::Entry& entry, Sweep& block) {
    const std::string& path = field.doc.path;
    if (field.read == nullptr) {
      diagnostics_.add(entry.where, fmt::format("'{}' cannot be swept", path), "fields of a case");
      return;
    }
    if (!seen_.insert(path).second) {
      diagnostics_.add(entry.where, fmt::format("'{}' is swept twice", path));
      return;
    }
    const Value& values = entry.value;
    if (values.kind != Value::Kind::kList || values.items.empty()) {
      diagnostics_.add(values.where,
                       values.kind == Value::Kind::kList
                           ? fmt::format("'{}' sweeps over nothing", path)
                           : fmt::format("'{}' is {}", path, describe(values)),
                       "a list of at least one value");
      return;
    }
    if (pinned_.contains(path)) {
      return;
    }
    Sweep leaf{.kind = Sweep::Kind::kField, .label = path, .where = entry.where, .field = &field};
    for (const Value& item : values.items) {
      leaf.values.push_back(&item);
    }
    block.parts.push_back(std::move(leaf));
  }

  void check_lengths(const Sweep& zip) {
    for (const Sweep& part : zip.parts) {
      const auto first = count_points(zip.parts.front());
      const auto mine = count_points(part);
      if (first && mine && *first != *mine) {
        diagnostics_.add(part.where,
                         fmt::format("'{}' has {} values, but '{}' in the same zip has {}",
                                     part.label, *mine, zip.parts.front().label, *first),
                         "lists of one length");
      }
    }
  }

  const std::set<std::string>& pinned_;
  const Fields& fields_;
  Diagnostics& diagnostics_;
  std::set<std::string> seen_;
};

}  // namespace

Sweep read_sweep(const Value& value, const std::set<std::string>& pinned, const Fields& fields,
                 Diagnostics& diagnostics) {
  Sweep root{.kind = Sweep::Kind::kProduct, .label = "sweep", .where = value.where};
  SweepReader(pinned, fields, diagnostics)
      .add_blocks(value, Sweep::Kind::kProduct, value.where, root);
  return root;
}

std::optional<std::int64_t> count_points(const Sweep& sweep) {
  switch (sweep.kind) {
    case Sweep::Kind::kField:
      return static_cast<std::int64_t>(sweep.values.size());
    case Sweep::Kind::kZip:
      return count_points(sweep.parts.front());
    case Sweep::Kind::kProduct:
      break;
  }
  std::optional<std::int64_t> count = 1;
  for (const Sweep& part : sweep.parts) {
    const auto factor = count_points(part);
    count = count && factor ? checked_multiply(*count, *factor) : std::nullopt;
  }
  return count;
}

std::vector<std::vector<Assignment>> sweep_points(const Sweep& sweep) {
  std::vector<std::vector<Assignment>> points;
  if (sweep.kind == Sweep::Kind::kField) {
    for (const Value* value : sweep.values) {
      points.push_back({{sweep.field, value}});
    }
    return points;
  }
  const bool zip = sweep.kind == Sweep::Kind::kZip;
  points.resize(zip ? static_cast<std::size_t>(count_points(sweep).value_or(0)) : 1);
  for (const Sweep& part : sweep.parts) {
    const auto others = sweep_points(part);
    std::vector<std::vector<Assignment>> joined;
    for (std::size_t i = 0; i < points.size(); ++i) {
      const std::size_t first = zip ? i : 0;
      const std::size_t last = zip ? i + 1 : others.size();
      for (std::size_t j = first; j < last; ++j) {
        joined.push_back(points[i]);
        joined.back().insert(joined.back().end(), others[j].begin(), others[j].end());
      }
    }
    points = std::move(joined);
  }
  return points;
}

std::vector<std::string> swept_fields(const Sweep& sweep) {
  if (sweep.kind == Sweep::Kind::kField) {
    return {sweep.field->doc.path};
  }
  std::vector<std::string> all;
  for (const Sweep& part : sweep.parts) {
    const auto fields_of_part = swept_fields(part);
    all.insert(all.end(), fields_of_part.begin(), fields_of_part.end());
  }
  return all;
}

}  // namespace lora_bench
