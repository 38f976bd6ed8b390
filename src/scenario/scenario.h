#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "scenario/case.h"

namespace lora_bench {

// What cannot be of a case, by the field that says it, "tuning.split", and what can.
struct SettingFault {
  std::string key, what, allowed;
  std::vector<std::string> others = {};  // fields that it follows from as well
};

// One entry of the schema, for docs, `list` and the test that holds them together.
struct FieldDoc {
  std::string path;      // "adapters.rank"
  std::string type;      // "integer, list or map of shares"
  std::string allowed;   // "0 to 4096"
  std::string fallback;  // default, "" = required
  std::string meaning;
};

// A field of a scenario that says one thing of a tuning.
struct Knob {
  FieldDoc doc;
  std::vector<std::string> words;  // it is one of these, the first of which says nothing
  std::int64_t most = 0;           // else a number up to this, of which 0 does; 0: any word
};

// What only rooms above know of tunings. Without knobs a scenario has no tuning.
struct TuningRules {
  std::vector<Knob> knobs;  // in the order in which a tuning says them
  // What is wrong with a tuning on any device; empty = nothing is.
  std::function<std::optional<SettingFault>(const Tuning&)> fault;
};

struct LoadOptions {
  std::vector<std::string> overrides = {};  // "adapters.rank=32", as given with --set
  std::int64_t max_cases = 10000;           // a sweep above this is an error that says how many
  // Throws UsageError for a name that is no backend, which only rooms above know; empty = any name.
  std::function<void(const std::string&)> check_backend = {};
  // Why a whole layer cannot be divided or run as a case asks, for the same reason; empty = it can.
  std::function<std::optional<SettingFault>(const Case&)> check_layer = {};
  TuningRules tuning = {};
  bool timed = true;  // false: cases may ask what is proved alone without saying measure: false
  // Leaves it to who chooses among the cases whether those that cannot be were asked for. Where
  // none can be, or anything is wrong with the file besides, they are thrown all the same.
  bool keep_refused = false;
};

// A case whose fields are right one by one, and cannot be together.
struct RefusedCase {
  Case spec;  // as far as it could be read
  std::vector<Diagnostic> why;
};

// A file with all its cases; every error of the file was already thrown as one UsageError.
struct Scenario {
  std::string name;
  std::string file;
  std::string question;            // what the scenario answers (key `question`)
  std::uint64_t content_hash = 0;  // of the expanded cases: same cases, same hash
  std::vector<Case> cases;
  std::vector<RefusedCase> refused;     // see LoadOptions::keep_refused
  std::vector<std::string> sweep_keys;  // in the order of the sweep
};

// Reads, expands and checks; throws UsageError with every diagnostic of the file.
[[nodiscard]] Scenario load_scenario(const std::filesystem::path& file, const LoadOptions& options);

// The same from memory; `file` names it in messages and anchors relative includes.
[[nodiscard]] Scenario parse_scenario(const std::string& text, const std::filesystem::path& file,
                                      const LoadOptions& options);

// Where the installed or the source tree keeps scenarios and models.yaml: beside the executable
// (bin/../share/lora-bench/scenarios), else the source tree of the build. LORA_BENCH_SCENARIOS
// overrides both.
[[nodiscard]] std::filesystem::path scenario_folder();

// models.yaml of the scenario folder; the shipped one where a folder of one's own has none.
[[nodiscard]] std::filesystem::path models_file();

// A path as given, or a bare name looked up in scenario_folder() ("decode" -> decode.yaml).
[[nodiscard]] std::filesystem::path find_scenario(const std::string& path_or_name);

// One row of models.yaml.
struct ModelLayer {
  std::string model;
  std::string layer;
  std::int64_t in_features = 0;
  std::vector<std::int64_t> widths = {};
  std::int64_t kv_heads = 0;        // of qkv, where they are not of 128 columns
  std::int64_t count_per_step = 1;  // how many such layers a forward pass runs
  std::string source;               // where the sizes were read
  ExpertsSpec experts = {};         // of a layer of experts
};
[[nodiscard]] std::vector<ModelLayer> load_models();
// The names of the layers of each model and what it `lacks`; none where models.yaml is unreadable.
[[nodiscard]] std::map<std::string, std::vector<std::string>> layers_of_models();

// Of every field, these knobs among them.
[[nodiscard]] std::vector<FieldDoc> scenario_fields(const std::vector<Knob>& knobs);

// The case as a scenario file of its own: read again it is the same case, under the scenario's
// name. What has its default value is left out, as are tags. A trace is named by its file, which
// must lie beside.
[[nodiscard]] std::string scenario_text(const Case& spec);

// FNV-1a over what the cases are, whatever their file looks like.
[[nodiscard]] std::uint64_t content_hash(const std::vector<Case>& cases);

}  // namespace lora_bench
