#pragma once

#include <cfenv>
#include <filesystem>
#include <memory>
#include <string>

#include "ops/backend.h"

struct lora_bench_descriptor;

namespace lora_bench {

// A backend in a shared library, see include/lora_bench_backend.h, or in a file of Python, as the
// command line names it: NAME=PATH, or a path (it contains '/' or ends in ".so" or ".py"), whose
// name is the file's without "lib"; in place of a path peer:NAME (ops/peers.h), its own name.
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
struct LoadedPlugin {
  std::shared_ptr<const Backend> backend;
  std::string provenance;  // of the file, and of what it imported where it is of Python
};
[[nodiscard]] LoadedPlugin load_plugin(const PluginPath& plugin);

// The functions of a descriptor as a Backend: structs of the interface out of ours, errors and
// stray exceptions into CaseError. The descriptor has been checked and outlives the backend.
[[nodiscard]] std::unique_ptr<Backend> make_plugin_backend(std::string name,
                                                           const lora_bench_descriptor& descriptor);

// How this thread rounds, and whether it flushes small numbers to zero, is after it as before:
// other people's code that changes it must not change what comes next, the proof above all.
class KeptFloatingPoint {
 public:
  KeptFloatingPoint() { std::fegetenv(&before_); }
  ~KeptFloatingPoint() { std::fesetenv(&before_); }
  KeptFloatingPoint(const KeptFloatingPoint&) = delete;
  KeptFloatingPoint& operator=(const KeptFloatingPoint&) = delete;

 private:
  std::fenv_t before_{};
};

}  // namespace lora_bench
