#include "scenario/tuning_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>

#include "core/units.h"
#include "scenario/settings.h"

namespace lora_bench {
namespace {

constexpr std::array<std::string_view, 5> kTopKeys{"device", "tool", "commit", "date", "shapes"};
constexpr std::array<std::string_view, 12> kShapeKeys{"op",   "dtype",  "intermediate", "weights",
                                                      "in",   "out",    "rank",         "tokens",
                                                      "rows", "tuning", "time_us",      "auto_us"};

// Of a whole layer auto launches the adapters' part, a linear op.
constexpr const char* kShapeOps = "shrink, expand, linear, embedding, logits";

constexpr std::string_view kTuned = "what `lora-bench tune SCENARIO --out FILE.yaml` wrote";

class TuningReader {
 public:
  TuningReader(const TuningRules& rules, Diagnostics& diagnostics)
      : rules_(rules), fields_(fields_with(rules.knobs)), diagnostics_(diagnostics) {}

  TuningFile read(const Value& root) {
    TuningFile tunings;
    if (is_scenario(root)) {
      diagnostics_.add(root.where, "a scenario, and no file of tunings", std::string(kTuned));
      return tunings;
    }
    if (!is_map(root, "a tuning file", kTopKeys)) {
      return tunings;
    }
    read_text_of(root, "device", tunings.device);
    read_text_of(root, "tool", tunings.tool);
    read_text_of(root, "commit", tunings.commit);
    read_text_of(root, "date", tunings.date);
    const Value* shapes = root.find("shapes");
    if (shapes == nullptr || shapes->kind != Value::Kind::kList) {
      diagnostics_.add(shapes == nullptr ? root.where : shapes->where, "'shapes' is no list",
                       "a list of maps");
      return tunings;
    }
    for (const Value& item : shapes->items) {
      const TunedShape shape = read_shape(item);
      const bool again = std::any_of(tunings.shapes.begin(), tunings.shapes.end(),
                                     [&](const auto& known) { return known.shape == shape.shape; });
      if (again && diagnostics_.empty()) {
        diagnostics_.add(item.where, "a shape that stands above too", "each shape once");
      }
      tunings.shapes.push_back(shape);
    }
    return tunings;
  }

 private:
  // Each of its keys would be unknown here, one line a key.
  [[nodiscard]] bool is_scenario(const Value& root) const {
    return root.find("shapes") == nullptr &&
           std::any_of(root.entries.begin(), root.entries.end(), [&](const Value::Entry& entry) {
             return find_field(fields_, entry.key) != nullptr || is_group(fields_, entry.key);
           });
  }

  template <std::size_t kCount>
  bool is_map(const Value& value, const std::string& what,
              const std::array<std::string_view, kCount>& keys) {
    if (value.kind != Value::Kind::kMap) {
      diagnostics_.add(value.where, fmt::format("{} is {}", what, describe(value)), "a map");
      return false;
    }
    const std::vector<std::string> known(keys.begin(), keys.end());
    for (const Value::Entry& entry : value.entries) {
      if (std::find(known.begin(), known.end(), entry.key) == known.end()) {
        diagnostics_.add(entry.where, fmt::format("unknown key '{}'", entry.key),
                         fmt::format("{}", fmt::join(known, ", ")), nearest(entry.key, known));
      }
    }
    return true;
  }

  // Whether nothing was wrong with it, told before (of a map that stands twice, as an alias) or
  // not.
  template <typename Read>
  bool reader(const Value& map, const std::string& key, const std::string& allowed, Read read) {
    Diagnostics wrong;
    if (const Value* value = map.find(key)) {
      read(Reader(*value, key, allowed, wrong));
    } else {
      wrong.add(map.where, fmt::format("'{}' is missing", key), allowed);
    }
    diagnostics_.add_all(wrong.all());
    return wrong.empty();
  }

  void complain(const Value& map, const char* key, const std::string& what,
                const std::string& allowed) {
    diagnostics_.add(map.find(key)->where, fmt::format("'{}' {}", key, what), allowed);
  }

  void read_text_of(const Value& map, const char* key, std::string& target) {
    const std::string allowed = "text; a number in quotes";
    const Value* value = map.find(key);
    if (value != nullptr && value->kind == Value::Kind::kScalar && !value->quoted &&
        real_in(value->text)) {
      complain(map, key, "is " + value->text, allowed);
      return;
    }
    reader(map, key, allowed, [&](const Reader& text) { text.text(target); });
  }
  // As field `path` of a scenario.
  bool read_field_of(const Value& map, const char* key, const char* path,
                     const std::string& allowed, Case& target) {
    FieldContext context;
    return reader(map, key, allowed, [&](const Reader& value) {
      find_field(fields_, path)->read(value, target, context);
    });
  }
  bool read_power_of(const Value& map, const char* key, std::int64_t most, std::int64_t& target) {
    if (!reader(map, key, fmt::format("a power of two from 1 to {}", most),
                [&](const Reader& value) { value.integer(target, 1, most); })) {
      return false;
    }
    const auto value = static_cast<std::uint64_t>(target);
    if (std::has_single_bit(value)) {
      return true;
    }
    const std::uint64_t power = std::bit_ceil(value);
    complain(map, key, fmt::format("is {}", value),
             fmt::format("a power of two, {} holds {} to {}", power, power / 2 + 1, power));
    return false;
  }
  void read_time_of(const Value& map, const char* key, double& target) {
    reader(map, key, "a number from 0 to 1e12",
           [&](const Reader& value) { value.real(target, 0, 1e12); });
  }

  // What no case can be would never match, so it is refused as it would be there.
  void read_layer(const Value& item, ShapeClass& shape) {
    Case spec;
    if (read_field_of(item, "op", "op", kShapeOps, spec) && has_base(spec.op)) {
      complain(item, "op", "is layer, whose adapters are a linear op", kShapeOps);
    }
    const std::string& dtypes = find_field(fields_, "intermediate")->doc.allowed;
    const bool dtype =
        read_field_of(item, "dtype", "dtype", find_field(fields_, "dtype")->doc.allowed, spec);
    const bool h = read_field_of(item, "intermediate", "intermediate", dtypes, spec);
    if (dtype && h && spec.intermediate != Dtype::kFp32 && spec.intermediate != spec.dtype) {
      complain(item, "intermediate",
               fmt::format("is {} with dtype {}", name(spec.intermediate), name(spec.dtype)),
               dtypes);
    }
    if (item.find("weights") != nullptr) {
      const std::string path = "weights.dtype";
      if (read_field_of(item, "weights", path.c_str(), find_field(fields_, path)->doc.allowed,
                        spec) &&
          spec.weights.dtype) {
        shape.weights = name(*spec.weights.dtype);
      }
    }
    read_field_of(item, "in", "layer.in", find_field(fields_, "layer.in")->doc.allowed, spec);
    read_widths(item, spec);
    shape.op = name(spec.op);
    shape.dtype = name(spec.dtype);
    shape.intermediate = name(spec.intermediate);
    shape.in_features = spec.layer.in_features;
    shape.widths = spec.layer.widths;
  }

  void read_widths(const Value& item, Case& spec) {
    const std::string& allowed = find_field(fields_, "layer.out")->doc.allowed;
    const auto& widths = spec.layer.widths;
    if (!read_field_of(item, "out", "layer.out", allowed, spec)) {
      return;
    }
    if (widths.empty() || widths.size() > std::size_t{kMaxSlices}) {
      complain(item, "out", fmt::format("has {} widths", widths.size()), allowed);
    } else if (spec.op == Op::kLogits && widths.size() > 1) {
      complain(item, "out", fmt::format("has {} widths with op logits", widths.size()), "one");
    }
  }

  void read_sizes(const Value& item, ShapeClass& shape) {
    read_power_of(item, "rank", kMaxRank, shape.rank);
    const bool tokens = read_power_of(item, "tokens", kMaxTokens, shape.tokens);
    const bool rows = read_power_of(item, "rows", kMaxTokens, shape.rows);
    if (tokens && rows && shape.rows > shape.tokens) {
      complain(item, "rows", fmt::format("is {} with tokens {}", shape.rows, shape.tokens),
               "at most the tokens");
    }
  }

  TunedShape read_shape(const Value& item) {
    TunedShape tuned;
    if (!is_map(item, "a shape", kShapeKeys)) {
      return tuned;
    }
    read_layer(item, tuned.shape);
    read_sizes(item, tuned.shape);
    read_time_of(item, "time_us", tuned.time_us);
    read_time_of(item, "auto_us", tuned.auto_us);
    read_tuning(item, tuned.tuning);
    return tuned;
  }

  // The fields of a scenario, read as there.
  void read_tuning(const Value& item, Tuning& tuning) {
    const Value* map = item.find("tuning");
    if (map == nullptr || map->kind != Value::Kind::kMap) {
      diagnostics_.add(map == nullptr ? item.where : map->where, "'tuning' is no map",
                       "a map as in a scenario");
      return;
    }
    Settings settings;
    flatten(*map, "tuning", fields_, settings, diagnostics_);
    Case scratch;
    FieldContext context;
    for (const Field& field : fields_) {
      if (const Value* value = settings.find(field.doc.path)) {
        field.read(Reader(*value, field.doc.path, field.doc.allowed, diagnostics_), scratch,
                   context);
      }
    }
    tuning = scratch.tuning;
    if (const auto fault = rules_.fault ? rules_.fault(tuning) : std::nullopt) {
      const Value* place = settings.find(fault->key);
      diagnostics_.add(place == nullptr ? map->where : place->where, fault->what, fault->allowed);
    }
  }

  const TuningRules& rules_;
  const Fields fields_;
  Diagnostics& diagnostics_;
};

}  // namespace

std::string tuning_file_text(const TuningFile& tunings) {
  std::string text = fmt::format(
      "# Tunings of backend auto, proved and timed by `lora-bench tune`; read by --tuning.\n"
      "device: \"{}\"\ntool: \"{}\"\ncommit: \"{}\"\ndate: \"{}\"\n",
      tunings.device, tunings.tool, tunings.commit, tunings.date);
  text += tunings.shapes.empty() ? "shapes: []\n" : "shapes:\n";
  for (const TunedShape& tuned : tunings.shapes) {
    const ShapeClass& shape = tuned.shape;
    text += fmt::format(
        "  - {{op: {}, dtype: {}, intermediate: {}{}, in: {}, out: [{}], rank: {}, tokens: {}, "
        "rows: {},\n     time_us: {:.4g}, auto_us: {:.4g}, tuning: {{{}}}}}\n",
        shape.op, shape.dtype, shape.intermediate,
        shape.weights.empty() ? "" : ", weights: " + shape.weights, shape.in_features,
        fmt::join(shape.widths, ", "), shape.rank, shape.tokens, shape.rows, tuned.time_us,
        tuned.auto_us, tuning_text(tuned.tuning));
  }
  return text;
}

TuningFile parse_tuning_file(const std::string& text, const std::filesystem::path& file,
                             const TuningRules& rules) {
  Diagnostics diagnostics;
  const auto root = parse_yaml(text, file.string(), diagnostics);
  diagnostics.throw_if_any();
  TuningFile tunings;
  if (root) {
    tunings = TuningReader(rules, diagnostics).read(*root);
  } else {
    diagnostics.add({file.string(), 0, 0}, "the file is empty", std::string(kTuned));
  }
  diagnostics.throw_if_any();
  return tunings;
}

TuningFile load_tuning_file(const std::filesystem::path& file, const TuningRules& rules) {
  Diagnostics diagnostics;
  const auto text = read_text(file, {}, diagnostics);
  if (!text) {
    std::vector<Diagnostic> told = diagnostics.all();
    told.back().allowed = kTuned;
    throw UsageError(std::move(told));
  }
  return parse_tuning_file(*text, file, rules);
}

}  // namespace lora_bench
