#pragma once

#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "scenario/diagnostics.h"
#include "scenario/schema.h"
#include "scenario/yaml_tree.h"

namespace lora_bench {

struct Setting {
  const Field* field = nullptr;
  const Value* value = nullptr;
};

// Fields by path. `model` with `layers` and `layer.in` with `layer.out` are two ways to say one
// thing: setting one way takes the other away.
class Settings {
 public:
  void put(const std::string& path, Setting setting);
  void put_all(const Settings& later);
  [[nodiscard]] const Value* find(const std::string& path) const;
  [[nodiscard]] bool has(const std::string& path) const { return find(path) != nullptr; }
  [[nodiscard]] const std::map<std::string, Setting>& entries() const { return entries_; }

 private:
  std::map<std::string, Setting> entries_;
};

// What a key set later pushes out of sweeps and cases: itself, and the other way to say it.
void pin(const std::string& path, std::set<std::string>& pinned);

// A file with its includes and the overrides, flat; the sweep still unexpanded.
struct Document {
  Settings settings;
  const Value* sweep = nullptr;
  const Value* cases = nullptr;
  std::set<std::string> pinned_sweep;  // keys that a later file or --set took out of the sweep
  std::set<std::string> pinned_cases;
  bool readable = false;
};

// Owns every parsed value that settings point to.
class Sources {
 public:
  Sources(const Fields& fields, Diagnostics& diagnostics)
      : fields_(fields), diagnostics_(diagnostics) {}

  // An unreadable file gives an empty document and a complaint.
  [[nodiscard]] Document load(const std::string& text, const std::filesystem::path& file);
  void apply_override(const std::string& key_and_value, Document& document);
  const Value& keep(Value value);

 private:
  Document load_included(const Value& name, const std::filesystem::path& including);
  [[nodiscard]] Document load_tree(const Value& root, const std::filesystem::path& file);

  const Fields& fields_;
  Diagnostics& diagnostics_;
  std::deque<Value> values_;
  std::vector<std::filesystem::path> including_;  // from the scenario down to the file being read
  int files_ = 0;
};

// Keys that shape a file rather than a case: include, sweep, cases.
[[nodiscard]] bool is_structure(const std::string& path);

// Puts what a map of a file, of `cases` or of --set says into `settings`.
void flatten(const Value& map, const std::string& prefix, const Fields& fields, Settings& settings,
             Diagnostics& diagnostics);

// At most a little more than a scenario may be long, so that a huge file is refused, not read.
[[nodiscard]] std::optional<std::string> read_text(const std::filesystem::path& file,
                                                   const Location& where, Diagnostics& diagnostics);

// `name` beside or below the folder of `file`, or below the scenario folder; else a complaint.
[[nodiscard]] std::optional<std::filesystem::path> resolve_beside(
    const std::string& name, const std::filesystem::path& folder, const Location& where,
    Diagnostics& diagnostics);

}  // namespace lora_bench
