#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "ops/backend.h"

namespace lora_bench {

// A backend in a shared library, see include/lora_bench_backend.h, as the command line names it:
// NAME=PATH, or a path (it contains '/' or ends in ".so"), whose name is the file's without "lib".
struct PluginPath {
  std::string name;
  std::filesystem::path file;
};
[[nodiscard]] bool names_plugin(const std::string& spelling);
// Throws UsageError for a name that is empty or a built-in backend's, and for a file that is not
// there. Loads nothing.
[[nodiscard]] PluginPath find_plugin(const std::string& spelling);

// "/path/libmine.so sha256:..." of the file as it is now: what rows say about where they come from.
[[nodiscard]] std::string plugin_provenance(const std::filesystem::path& file);

// Loads it for the rest of the process. Throws UsageError saying what to do when it cannot be
// loaded, exports no descriptor or one that this program cannot use.
[[nodiscard]] std::unique_ptr<Backend> load_plugin(const PluginPath& plugin);

}  // namespace lora_bench
