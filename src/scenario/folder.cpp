#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "core/error.h"
#include "scenario/scenario.h"

namespace lora_bench {
namespace {

namespace fs = std::filesystem;

fs::path shipped_folder() {
  std::error_code error;
  const fs::path binary = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    fs::path installed = binary.parent_path().parent_path() / "share" / "lora-bench" / "scenarios";
    if (fs::is_directory(installed, error)) {
      return installed;
    }
  }
  return LORA_BENCH_SOURCE_SCENARIOS;
}

}  // namespace

fs::path scenario_folder() {
  const char* chosen = std::getenv("LORA_BENCH_SCENARIOS");
  return chosen != nullptr && *chosen != '\0' ? fs::path(chosen) : shipped_folder();
}

fs::path models_file() {
  constexpr const char* kName = "models.yaml";
  const fs::path folder = scenario_folder();
  std::error_code error;
  const bool has_none = fs::is_directory(folder, error) && !fs::exists(folder / kName, error);
  return (has_none ? shipped_folder() : folder) / kName;
}

fs::path find_scenario(const std::string& path_or_name) {
  std::error_code error;
  if (fs::exists(path_or_name, error) && !fs::is_directory(path_or_name, error)) {
    return path_or_name;
  }
  const fs::path folder = scenario_folder();
  for (const std::string& name : {path_or_name + ".yaml", path_or_name}) {
    if (!path_or_name.empty() && fs::is_regular_file(folder / name, error)) {
      return folder / name;
    }
  }
  std::vector<std::string> known;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".yaml" && entry.path().stem() != "models") {
      known.push_back(entry.path().stem().string());
    }
  }
  std::sort(known.begin(), known.end());
  Diagnostic missing;
  missing.what = fs::is_directory(path_or_name, error)
                     ? fmt::format("'{}' is a folder, no scenario", path_or_name)
                     : fmt::format("there is no scenario '{}'", path_or_name);
  if (known.empty()) {
    missing.allowed = fmt::format("a file; there is no {} '{}': set or unset LORA_BENCH_SCENARIOS",
                                  fs::is_directory(folder, error) ? "scenario in folder" : "folder",
                                  folder.string());
    throw UsageError(std::vector<Diagnostic>{missing});
  }
  missing.allowed = fmt::format("a file, or one of {}", fmt::join(known, ", "));
  if (folder != shipped_folder()) {
    missing.allowed += fmt::format(", which LORA_BENCH_SCENARIOS has in '{}'", folder.string());
  }
  missing.suggestion = nearest(path_or_name, known);
  throw UsageError(std::vector<Diagnostic>{missing});
}

}  // namespace lora_bench
