#include "scenario/settings.h"

#include <fmt/format.h>

#include <algorithm>

namespace lora_bench {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxFiles = 64;
constexpr std::size_t kMaxIncludeDepth = 16;

bool is_shape(const std::string& path) { return path == "layer.in" || path == "layer.out"; }
bool is_model(const std::string& path) { return path == "model" || path == "layers"; }

std::string keys_of_group(const Fields& fields, const std::string& prefix) {
  std::vector<std::string> keys;
  for (const Field& field : fields) {
    if (prefix.empty() || field.doc.path.starts_with(prefix + ".")) {
      const std::string rest = field.doc.path.substr(prefix.empty() ? 0 : prefix.size() + 1);
      const std::string key = rest.substr(0, rest.find('.'));
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
        keys.push_back(key);
      }
    }
  }
  return fmt::format("{}", fmt::join(keys, ", "));
}

// A later file's sweep replaces an earlier one; without one its keys leave the earlier one.
void take_over(const Value* later, std::set<std::string>& later_pinned, const Value*& part,
               std::set<std::string>& pinned) {
  if (later != nullptr) {
    part = later;
    pinned.clear();
  }
  pinned.merge(later_pinned);
}

}  // namespace

bool is_structure(const std::string& path) {
  return path == "include" || path == "sweep" || path == "cases";
}

void pin(const std::string& path, std::set<std::string>& pinned) {
  pinned.insert(path);
  if (is_shape(path)) {
    pinned.insert({"model", "layers"});
  } else if (is_model(path)) {
    pinned.insert({"layer.in", "layer.out"});
  }
}

void Settings::put(const std::string& path, Setting setting) {
  if (is_shape(path)) {
    entries_.erase("model");
    entries_.erase("layers");
  } else if (is_model(path)) {
    entries_.erase("layer.in");
    entries_.erase("layer.out");
  }
  entries_[path] = setting;
}

void Settings::put_all(const Settings& later) {
  for (const auto& [path, setting] : later.entries_) {
    put(path, setting);
  }
}

const Value* Settings::find(const std::string& path) const {
  const auto found = entries_.find(path);
  return found == entries_.end() ? nullptr : found->second.value;
}

void flatten(const Value& map, const std::string& prefix, const Fields& fields, Settings& settings,
             Diagnostics& diagnostics) {
  for (const Value::Entry& entry : map.entries) {
    const std::string path = prefix.empty() ? entry.key : prefix + "." + entry.key;
    if (is_structure(path)) {
      continue;
    }
    // `verify: false` is the short form of `verify: {enabled: false}`.
    const bool has_switch = find_field(fields, path + ".enabled") != nullptr;
    const bool is_short = has_switch && entry.value.kind == Value::Kind::kScalar;
    const std::string target = is_short ? path + ".enabled" : path;
    const Field* field = find_field(fields, target);
    if (field != nullptr) {
      if (settings.has(target)) {
        diagnostics.add(entry.where, fmt::format("'{}' is set twice", target));
      }
      const auto taken = [&](bool (*other)(const std::string&)) {
        return std::any_of(settings.entries().begin(), settings.entries().end(),
                           [&](const auto& known) { return other(known.first); });
      };
      if ((is_shape(target) && taken(is_model)) || (is_model(target) && taken(is_shape))) {
        diagnostics.add(entry.where, "a layer of its own beside 'model' or 'layers'",
                        "either `model` with `layers`, or `layer` with `in` and `out`");
      }
      settings.put(target, {field, &entry.value});
    } else if (!is_group(fields, path)) {
      // A dotted key fails in its own group: the neighbours of adapters.rnak are those of adapters.
      const std::string group = path.substr(0, path.rfind('.'));
      diagnostics.add(entry.where, fmt::format("unknown key '{}'", entry.key),
                      keys_of_group(fields, is_group(fields, group) ? group : prefix),
                      nearest_field(fields, path));
    } else if (entry.value.kind != Value::Kind::kMap) {
      diagnostics.add(entry.value.where, fmt::format("'{}' is {}", path, describe(entry.value)),
                      fmt::format("a map with {}", keys_of_group(fields, path)));
    } else {
      flatten(entry.value, path, fields, settings, diagnostics);
    }
  }
}

const Value& Sources::keep(Value value) {
  values_.push_back(std::move(value));
  return values_.back();
}

Document Sources::load(const std::string& text, const fs::path& file) {
  std::error_code error;
  const fs::path identity = fs::weakly_canonical(file, error);
  ++files_;
  const std::size_t before = diagnostics_.size();
  auto root = parse_yaml(text, file.string(), diagnostics_);
  if (!root) {
    if (diagnostics_.size() == before) {
      diagnostics_.add({file.string(), 0, 0}, "the file is empty", "a map of fields");
    }
    return {};
  }
  if (root->kind != Value::Kind::kMap) {
    diagnostics_.add(root->where, fmt::format("a scenario is {}", describe(*root)),
                     "a map of fields");
    return {};
  }
  including_.push_back(identity);
  Document document = load_tree(keep(std::move(*root)), file);
  including_.pop_back();
  return document;
}

Document Sources::load_tree(const Value& root, const fs::path& file) {
  Document document;
  document.readable = true;
  if (const Value* include = root.find("include")) {
    const bool list = include->kind == Value::Kind::kList;
    for (const Value& name : list ? include->items : std::vector<Value>{*include}) {
      Document included = load_included(name, file);
      document.settings.put_all(included.settings);
      take_over(included.sweep, included.pinned_sweep, document.sweep, document.pinned_sweep);
      take_over(included.cases, included.pinned_cases, document.cases, document.pinned_cases);
    }
  }
  Settings own;
  flatten(root, "", fields_, own, diagnostics_);
  document.settings.put_all(own);
  const auto replace = [&](const char* key, const Value*& part, std::set<std::string>& pinned) {
    if (const Value* mine = root.find(key)) {
      part = mine;
      pinned.clear();
      return;
    }
    for (const auto& [path, setting] : own.entries()) {
      pin(path, pinned);
    }
  };
  replace("sweep", document.sweep, document.pinned_sweep);
  replace("cases", document.cases, document.pinned_cases);
  return document;
}

Document Sources::load_included(const Value& name, const fs::path& including) {
  if (name.kind != Value::Kind::kScalar) {
    diagnostics_.add(name.where, fmt::format("'include' is {}", describe(name)), "a path");
    return {};
  }
  const auto path = resolve_beside(name.text, including.parent_path(), name.where, diagnostics_);
  if (!path) {
    return {};
  }
  std::error_code error;
  const fs::path identity = fs::weakly_canonical(*path, error);
  if (std::find(including_.begin(), including_.end(), identity) != including_.end()) {
    diagnostics_.add(name.where, fmt::format("'{}' includes itself", name.text));
    return {};
  }
  if (including_.size() > kMaxIncludeDepth || files_ >= kMaxFiles) {
    diagnostics_.add(name.where, "too many includes",
                     fmt::format("{} files, {} deep", kMaxFiles, kMaxIncludeDepth));
    return {};
  }
  const auto text = read_text(*path, name.where, diagnostics_);
  return text ? load(*text, *path) : Document{};
}

namespace {

void forget_lines(Value& value) {
  value.where.line = 0;
  value.where.column = 0;
  for (Value& item : value.items) {
    forget_lines(item);
  }
  for (Value::Entry& entry : value.entries) {
    entry.where.line = 0;
    entry.where.column = 0;
    forget_lines(entry.value);
  }
}

}  // namespace

void Sources::apply_override(const std::string& key_and_value, Document& document) {
  const Location where{"--set " + key_and_value, 0, 0};
  const std::size_t equals = key_and_value.find('=');
  if (equals == std::string::npos || equals == 0) {
    diagnostics_.add(where, "not an override", "key=value");
    return;
  }
  const std::string key = key_and_value.substr(0, equals);
  if (is_structure(key)) {
    diagnostics_.add(where, fmt::format("'{}' shapes the file", key), "fields of a case");
    return;
  }
  const std::size_t before = diagnostics_.size();
  auto value = parse_yaml(key_and_value.substr(equals + 1), where.file, diagnostics_);
  if (diagnostics_.size() > before) {
    return;
  }
  Value root = make_value(Value::Kind::kMap, where);
  root.entries.push_back(
      {key, where, value ? std::move(*value) : make_value(Value::Kind::kNull, where)});
  forget_lines(root);
  Settings own;
  flatten(keep(std::move(root)), "", fields_, own, diagnostics_);
  document.settings.put_all(own);
  for (const auto& [path, setting] : own.entries()) {
    pin(path, document.pinned_sweep);
    pin(path, document.pinned_cases);
  }
}

}  // namespace lora_bench
