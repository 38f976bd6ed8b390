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

class Loader {
 public:
  Loader(const fs::path& file, const LoadOptions& options)
      : file_(file),
        options_(options),
        fields_(fields_with(options.tuning.knobs)),
        sources_(fields_, diagnostics_),
        models_(diagnostics_) {
    context_.folder = file.parent_path();
    context_.check_backend = options.check_backend;
    context_.check_tuning = options.tuning.fault;
    context_.check_layer = options.check_layer;
  }

  Scenario load(const std::string& text) {
    document_ = sources_.load(text, file_);
    if (!document_.readable) {
      diagnostics_.throw_if_any();
    }
    for (const std::string& override_text : options_.overrides) {
      sources_.apply_override(override_text, document_);
    }
    read_all(document_.settings);
    read_sweep_once();
    read_entries();
    read_header();
    if (within_limit()) {
      for (const Entry& entry : entries_) {
        build_cases(entry);
      }
      refuse_equal_ids();
      part_cases();
    }
    diagnostics_.throw_if_any();
    scenario_.content_hash = content_hash(scenario_.cases);
    return std::move(scenario_);
  }

 private:
  [[nodiscard]] Location top() const { return {file_.string(), 1, 1}; }

  bool read(const Field& field, const Value& value, Case& target) {
    if (field.read == nullptr) {
      return true;
    }
    const std::size_t before = diagnostics_.size();
    field.read(Reader(value, field.doc.path, field.doc.allowed, diagnostics_, true), target,
               context_);
    return diagnostics_.size() == before;
  }

  // Every value is read once on its own, so that all errors show whatever the expansion comes to.
  void read_value(const Field& field, const Value& value) {
    Case scratch;
    const bool list_of_layers =
        field.doc.path == "layers" && value.kind == Value::Kind::kList && !value.items.empty();
    for (const Value& item : list_of_layers ? value.items : std::vector<Value>{value}) {
      if (!read(field, item, scratch)) {
        broken_.insert(field.doc.path);
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
    if (document_.sweep != nullptr) {
      const std::size_t before = diagnostics_.size();
      sweep_ = read_sweep(*document_.sweep, document_.pinned_sweep, fields_, diagnostics_);
      const auto kept = swept_fields(sweep_);
      const auto all = swept_fields(read_sweep(*document_.sweep, {}, fields_, diagnostics_));
      pinned_any_ = pinned_any_ || kept.size() != all.size();
      expandable_ = expandable_ && diagnostics_.size() == before;
      read_values(sweep_);
    }
  }

  void read_entries() {
    if (document_.cases == nullptr) {
      entries_.push_back({"", top(), {}, document_.settings, {}});
    } else if (document_.cases->kind != Value::Kind::kList || document_.cases->items.empty()) {
      diagnostics_.add(
          document_.cases->where,
          fmt::format("'cases' is {}",
                      document_.cases->items.empty() && document_.cases->kind == Value::Kind::kList
                          ? "an empty list"
                          : describe(*document_.cases)),
          "a list of at least one map");
    } else {
      for (const Value& item : document_.cases->items) {
        read_entry(item);
      }
    }
    for (Entry& entry : entries_) {
      add_layers(entry);
      entry.sweep.parts.push_back(sweep_);
    }
  }

  void read_entry(const Value& item) {
    if (item.kind != Value::Kind::kMap) {
      diagnostics_.add(item.where, fmt::format("a case is {}", describe(item)), "a map of fields");
      return;
    }
    for (const Value::Entry& entry : item.entries) {
      if (is_structure(entry.key)) {
        diagnostics_.add(entry.where, fmt::format("'{}' in a case", entry.key),
                         "name, and fields of a case");
      }
    }
    Settings all;
    flatten(item, "", fields_, all, diagnostics_);
    Entry entry{"", item.where, {}, document_.settings, {}};
    for (const auto& [path, setting] : all.entries()) {
      if (path == "name") {
        Reader(*setting.value, path, setting.field->doc.allowed, diagnostics_).word(entry.name);
      } else if (setting.field->read == nullptr) {
        diagnostics_.add(setting.value->where, fmt::format("'{}' in a case", path),
                         "name, and fields of a case");
      } else if (document_.pinned_cases.contains(path)) {
        pinned_any_ = true;
      } else {
        read_value(*setting.field, *setting.value);
        entry.own.put(path, setting);
      }
    }
    entry.merged.put_all(entry.own);
    entries_.push_back(std::move(entry));
  }

  [[nodiscard]] bool is_swept(const std::string& path) const {
    const auto swept = swept_fields(sweep_);
    return std::find(swept.begin(), swept.end(), path) != swept.end();
  }

  // `layers` as a list, or all layers of a model, multiply the case.
  void add_layers(Entry& entry) {
    if (is_swept("layers") || is_swept("layer.in") || is_swept("layer.out")) {
      return;
    }
    Sweep axis;
    axis.kind = Sweep::Kind::kField;
    axis.label = "layers";
    axis.field = find_field(fields_, "layers");
    const Value* layers = entry.merged.find("layers");
    layers = layers != nullptr && layers->text == kAllLayers ? nullptr : layers;
    if (layers != nullptr && layers->kind == Value::Kind::kList) {
      for (const Value& layer : layers->items) {
        axis.values.push_back(&layer);
      }
    } else if (layers == nullptr && is_swept("model")) {
      diagnostics_.add(sweep_.where, "a sweep over models without `layers`",
                       "`layers` that all of them have");
      broken_.insert("layers");
    } else if (const Value* model = entry.merged.find("model");
               layers == nullptr && model != nullptr) {
      for (const std::string& layer : models_.layers_of(model->text)) {
        axis.values.push_back(
            &sources_.keep(make_value(Value::Kind::kScalar, model->where, layer)));
      }
    }
    if (!axis.values.empty()) {
      entry.sweep.parts.push_back(std::move(axis));
    }
  }

  void read_header() {
    scenario_.file = file_.string();
    scenario_.name = file_.stem().string();
    const auto text_of = [&](const char* path, std::string& target, bool word) {
      const auto found = document_.settings.entries().find(path);
      if (found != document_.settings.entries().end()) {
        const Setting& setting = found->second;
        const Reader reader(*setting.value, path, setting.field->doc.allowed, diagnostics_);
        word ? reader.word(target) : reader.text(target);
      }
    };
    text_of("name", scenario_.name, true);
    text_of("question", scenario_.question, false);
    std::set<std::string> seen;
    for (const Entry& entry : entries_) {
      for (const std::string& path : swept_fields(entry.sweep)) {
        if (seen.insert(path).second) {
          scenario_.sweep_keys.push_back(path);
        }
      }
    }
  }

  bool within_limit() {
    if (!expandable_) {
      return false;
    }
    std::optional<std::int64_t> total = 0;
    for (const Entry& entry : entries_) {
      const auto count = count_points(entry.sweep);
      total = total && count ? checked_add(*total, *count) : std::nullopt;
    }
    if (total && *total <= options_.max_cases) {
      return true;
    }
    const Value* part = document_.sweep != nullptr ? document_.sweep : document_.cases;
    diagnostics_.add(part != nullptr ? part->where : top(),
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
      if (!is_swept(path) && !multiplied) {
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
    for (const Field& field : fields_) {
      const Value* value = settings.find(field.doc.path);
      if (value != nullptr && !broken_.contains(field.doc.path)) {
        read(field, *value, spec);
      }
    }
    Diagnostics of_case;
    const CaseChecker checker(settings, broken_, point.where, of_case, diagnostics_);
    const bool has_layer = resolve(spec, checker, models_);
    check_combinations(spec, has_layer, checker, context_);
    spec.id = std::move(id);
    built_.push_back({{std::move(spec), of_case.all()},
                      point.where,
                      pinned_any_ ? texts_of(settings) : std::map<std::string, std::string>()});
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
      } else if (!pinned_any_ || earlier->second != built.says) {
        diagnostics_.add(built.where, fmt::format("two cases have the id '{}'", id),
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
    if (!options_.keep_refused || scenario_.cases.empty() || !diagnostics_.empty()) {
      for (const RefusedCase& refused : scenario_.refused) {
        diagnostics_.add_all(refused.why);
      }
    }
  }

  struct Built {
    RefusedCase of;  // refused for nothing where it can be
    Location where;
    std::map<std::string, std::string> says;
  };

  fs::path file_;
  const LoadOptions& options_;
  Fields fields_;
  Diagnostics diagnostics_;
  Sources sources_;
  Models models_;
  FieldContext context_;
  Document document_;
  Sweep sweep_;
  bool expandable_ = true;
  bool pinned_any_ = false;  // a later file or --set took a field out of a sweep or a case
  std::vector<Entry> entries_;
  std::set<std::string> broken_;
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
