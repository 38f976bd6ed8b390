#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "core/units.h"
#include "scenario/checks.h"
#include "scenario/expand.h"
#include "scenario/resolve.h"
#include "scenario/scenario.h"
#include "scenario/settings.h"

namespace lora_bench {
namespace {

namespace fs = std::filesystem;

// What `layers` says for all of the model, as it means where nothing is said.
constexpr std::string_view kAllLayers = "all";

// What a case says, all of it, as text: two that differ in nothing are one.
std::map<std::string, std::string> texts_of(const Settings& settings) {
  std::map<std::string, std::string> texts;
  for (const auto& [path, setting] : settings.entries()) {
    texts[path] = canonical(*setting.value);
  }
  return texts;
}

// One entry of `cases`, or the file alone when there are none.
struct Entry {
  std::string name;
  Location where;
  Settings own;
  Settings merged;  // of the file, then `own`
  Sweep sweep;
};

// A scenario file while it is loaded: what it is read with, and what was read of it so far.
struct Reading {
  Reading(const fs::path& scenario_file, const LoadOptions& options)
      : file(scenario_file),
        fields(fields_with(options.tuning.knobs)),
        sources(fields, diagnostics),
        models(diagnostics) {
    context.folder = file.parent_path();
    context.check_backend = options.check_backend;
    context.check_tuning = options.tuning.fault;
    context.check_layer = options.check_layer;
    context.timed = options.timed;
  }

  [[nodiscard]] Location top() const { return {file.string(), 1, 1}; }

  bool read(const Field& field, const Value& value, Case& target) {
    if (field.read == nullptr) {
      return true;
    }
    const std::size_t before = diagnostics.size();
    field.read(Reader(value, field.doc.path, field.doc.allowed, diagnostics, true), target,
               context);
    return diagnostics.size() == before;
  }

  [[nodiscard]] bool is_swept(const std::string& path) const {
    const auto swept = swept_fields(sweep);
    return std::find(swept.begin(), swept.end(), path) != swept.end();
  }

  fs::path file;
  Fields fields;
  Diagnostics diagnostics;
  Sources sources;
  Models models;
  FieldContext context;
  Document document;
  Sweep sweep;
  bool expandable = true;
  bool pinned_any = false;  // a later file or --set took a field out of a sweep or a case
  std::vector<Entry> entries;
  std::set<std::string> broken;
};

// Reads the entries of a document, each with its sweep.
class EntryReader {
 public:
  explicit EntryReader(Reading& reading) : from_(reading) {}

  void run() {
    read_all(from_.document.settings);
    read_sweep_once();
    read_entries();
  }

 private:
  // Every value is read once on its own, so that all errors show whatever the expansion comes to.
  void read_value(const Field& field, const Value& value) {
    Case scratch;
    const bool list_of_layers =
        field.doc.path == "layers" && value.kind == Value::Kind::kList && !value.items.empty();
    for (const Value& item : list_of_layers ? value.items : std::vector<Value>{value}) {
      if (!from_.read(field, item, scratch)) {
        from_.broken.insert(field.doc.path);
      }
    }
  }

  void read_all(const Settings& settings) {
    for (const auto& [path, setting] : settings.entries()) {
      read_value(*setting.field, *setting.value);
    }
  }

  void read_values(const Sweep& sweep) {
    for (const Value* value : sweep.values) {
      read_value(*sweep.field, *value);
    }
    for (const Sweep& part : sweep.parts) {
      read_values(part);
    }
  }

  void read_sweep_once() {
    if (from_.document.sweep != nullptr) {
      const std::size_t before = from_.diagnostics.size();
      from_.sweep = read_sweep(*from_.document.sweep, from_.document.pinned_sweep, from_.fields,
                               from_.diagnostics);
      const auto kept = swept_fields(from_.sweep);
      const auto all =
          swept_fields(read_sweep(*from_.document.sweep, {}, from_.fields, from_.diagnostics));
      from_.pinned_any = from_.pinned_any || kept.size() != all.size();
      from_.expandable = from_.expandable && from_.diagnostics.size() == before;
      read_values(from_.sweep);
    }
  }

  void read_entries() {
    if (from_.document.cases == nullptr) {
      from_.entries.push_back({"", from_.top(), {}, from_.document.settings, {}});
    } else if (from_.document.cases->kind != Value::Kind::kList ||
               from_.document.cases->items.empty()) {
      from_.diagnostics.add(
          from_.document.cases->where,
          fmt::format("'cases' is {}", from_.document.cases->items.empty() &&
                                               from_.document.cases->kind == Value::Kind::kList
                                           ? "an empty list"
                                           : describe(*from_.document.cases)),
          "a list of at least one map");
    } else {
      for (const Value& item : from_.document.cases->items) {
        read_entry(item);
      }
    }
    for (Entry& entry : from_.entries) {
      add_layers(entry);
      entry.sweep.parts.push_back(from_.sweep);
    }
  }

  void read_entry(const Value& item) {
    if (item.kind != Value::Kind::kMap) {
      from_.diagnostics.add(item.where, fmt::format("a case is {}", describe(item)),
                            "a map of fields");
      return;
    }
    for (const Value::Entry& entry : item.entries) {
      if (is_structure(entry.key)) {
        from_.diagnostics.add(entry.where, fmt::format("'{}' in a case", entry.key),
                              "name, and fields of a case");
      }
    }
    Settings all;
    flatten(item, "", from_.fields, all, from_.diagnostics);
    Entry entry{"", item.where, {}, from_.document.settings, {}};
    for (const auto& [path, setting] : all.entries()) {
      if (path == "name") {
        Reader(*setting.value, path, setting.field->doc.allowed, from_.diagnostics)
            .word(entry.name);
      } else if (setting.field->read == nullptr) {
        from_.diagnostics.add(setting.value->where, fmt::format("'{}' in a case", path),
                              "name, and fields of a case");
      } else if (from_.document.pinned_cases.contains(path)) {
        from_.pinned_any = true;
      } else {
        read_value(*setting.field, *setting.value);
        entry.own.put(path, setting);
      }
    }
    entry.merged.put_all(entry.own);
    from_.entries.push_back(std::move(entry));
  }

  // `layers` as a list, or all layers of a model, multiply the case.
  void add_layers(Entry& entry) {
    if (from_.is_swept("layers") || from_.is_swept("layer.in") || from_.is_swept("layer.out")) {
      return;
    }
    Sweep axis;
    axis.kind = Sweep::Kind::kField;
    axis.label = "layers";
    axis.field = find_field(from_.fields, "layers");
    const Value* layers = entry.merged.find("layers");
    layers = layers != nullptr && layers->text == kAllLayers ? nullptr : layers;
    if (layers != nullptr && layers->kind == Value::Kind::kList) {
      for (const Value& layer : layers->items) {
        axis.values.push_back(&layer);
      }
    } else if (layers == nullptr && from_.is_swept("model")) {
      from_.diagnostics.add(from_.sweep.where, "a sweep over models without `layers`",
                            "`layers` that all of them have");
      from_.broken.insert("layers");
    } else if (const Value* model = entry.merged.find("model");
               layers == nullptr && model != nullptr) {
      for (const std::string& layer : from_.models.layers_of(model->text)) {
        axis.values.push_back(
            &from_.sources.keep(make_value(Value::Kind::kScalar, model->where, layer)));
      }
    }
    if (!axis.values.empty()) {
      entry.sweep.parts.push_back(std::move(axis));
    }
  }

  Reading& from_;
};

// Makes the cases of the entries.
class Loader {
 public:
  Loader(const fs::path& file, const LoadOptions& options)
      : options_(options), from_(file, options) {}

  Scenario load(const std::string& text) {
    from_.document = from_.sources.load(text, from_.file);
    if (!from_.document.readable) {
      from_.diagnostics.throw_if_any();
    }
    for (const std::string& override_text : options_.overrides) {
      from_.sources.apply_override(override_text, from_.document);
    }
    EntryReader(from_).run();
    read_header();
    if (within_limit()) {
      for (const Entry& entry : from_.entries) {
        build_cases(entry);
      }
      refuse_equal_ids();
      part_cases();
    }
    from_.diagnostics.throw_if_any();
    scenario_.content_hash = content_hash(scenario_.cases);
    return std::move(scenario_);
  }

 private:
  void read_header() {
    scenario_.file = from_.file.string();
    scenario_.name = from_.file.stem().string();
    const auto text_of = [&](const char* path, std::string& target, bool word) {
      const auto found = from_.document.settings.entries().find(path);
      if (found != from_.document.settings.entries().end()) {
        const Setting& setting = found->second;
        const Reader reader(*setting.value, path, setting.field->doc.allowed, from_.diagnostics);
        word ? reader.word(target) : reader.text(target);
      }
    };
    text_of("name", scenario_.name, true);
    text_of("question", scenario_.question, false);
    std::set<std::string> seen;
    for (const Entry& entry : from_.entries) {
      for (const std::string& path : swept_fields(entry.sweep)) {
        if (seen.insert(path).second) {
          scenario_.sweep_keys.push_back(path);
        }
      }
    }
  }

  bool within_limit() {
    if (!from_.expandable) {
      return false;
    }
    std::optional<std::int64_t> total = 0;
    for (const Entry& entry : from_.entries) {
      const auto count = count_points(entry.sweep);
      total = total && count ? checked_add(*total, *count) : std::nullopt;
    }
    if (total && *total <= options_.max_cases) {
      return true;
    }
    const Value* part =
        from_.document.sweep != nullptr ? from_.document.sweep : from_.document.cases;
    from_.diagnostics.add(part != nullptr ? part->where : from_.top(),
                          total ? fmt::format("this expands to {} cases", *total)
                                : "this expands to more cases than a 64-bit number counts",
                          fmt::format("at most {} cases", options_.max_cases));
    return false;
  }

  void build_cases(const Entry& entry) {
    std::vector<std::string> in_ids = swept_fields(entry.sweep);
    for (const auto& [path, setting] : entry.own.entries()) {
      in_ids.push_back(path);
    }
    const CaseNamer namer(in_ids);
    Point point{entry.name, entry.where, {}, {}};
    for (const auto& [path, setting] : entry.own.entries()) {
      const bool multiplied = path == "layers" && (setting.value->kind == Value::Kind::kList ||
                                                   setting.value->text == kAllLayers);
      if (!from_.is_swept(path) && !multiplied) {
        point.own.emplace_back(setting.field, setting.value);
      }
    }
    for (auto& swept : sweep_points(entry.sweep)) {
      point.swept = std::move(swept);
      Settings settings = entry.merged;
      for (const auto& [field, value] : point.swept) {
        settings.put(field->doc.path, {field, value});
      }
      add_case(point, settings, namer.id(point, scenario_.name));
    }
  }

  void add_case(const Point& point, const Settings& settings, std::string id) {
    Case spec = default_case();
    spec.scenario = scenario_.name;
    spec.scenario_file = scenario_.file;
    spec.point = point_of(point);
    // In the order of the table, which is that of a tuning.
    for (const Field& field : from_.fields) {
      const Value* value = settings.find(field.doc.path);
      if (value != nullptr && !from_.broken.contains(field.doc.path)) {
        from_.read(field, *value, spec);
      }
    }
    Diagnostics of_case;
    const CaseChecker checker(settings, from_.broken, point.where, of_case, from_.diagnostics);
    const bool has_layer = resolve(spec, checker, from_.models);
    check_combinations(spec, has_layer, checker, from_.context);
    spec.id = std::move(id);
    built_.push_back(
        {{std::move(spec), of_case.all()},
         point.where,
         from_.pinned_any ? texts_of(settings) : std::map<std::string, std::string>()});
  }

  void refuse_equal_ids() {
    // A pinned field can leave cases that differ in nothing, neither in what is swept nor in what
    // an entry says itself; one of each is what was meant.
    std::unordered_map<std::string, std::map<std::string, std::string>> seen;
    std::vector<Built> kept;
    for (Built& built : built_) {
      const std::string& id = built.of.spec.id;
      const auto [earlier, fresh] = seen.try_emplace(id, built.says);
      if (fresh) {
        kept.push_back(std::move(built));
      } else if (!from_.pinned_any || earlier->second != built.says) {
        from_.diagnostics.add(built.where, fmt::format("two cases have the id '{}'", id),
                              "cases that differ, or a `name` for each");
      }
    }
    built_ = std::move(kept);
  }

  void part_cases() {
    for (Built& built : built_) {
      if (built.of.why.empty()) {
        scenario_.cases.push_back(std::move(built.of.spec));
      } else {
        scenario_.refused.push_back(std::move(built.of));
      }
    }
    if (!options_.keep_refused || scenario_.cases.empty() || !from_.diagnostics.empty()) {
      for (const RefusedCase& refused : scenario_.refused) {
        from_.diagnostics.add_all(refused.why);
      }
    }
  }

  struct Built {
    RefusedCase of;  // refused for nothing where it can be
    Location where;
    std::map<std::string, std::string> says;
  };

  const LoadOptions& options_;
  Reading from_;
  std::vector<Built> built_;
  Scenario scenario_;
};

}  // namespace

Scenario parse_scenario(const std::string& text, const fs::path& file, const LoadOptions& options) {
  return Loader(file, options).load(text);
}

Scenario load_scenario(const fs::path& file, const LoadOptions& options) {
  Diagnostics diagnostics;
  const auto text = read_text(file, {}, diagnostics);
  diagnostics.throw_if_any();
  return parse_scenario(*text, file, options);
}

}  // namespace lora_bench
