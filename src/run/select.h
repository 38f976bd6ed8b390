#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "ops/backend.h"
#include "scenario/case.h"

namespace lora_bench {

// A backend that was asked for: usable, or with the sentence that its rows will carry.
struct Selected {
  std::string name;  // as rows have it
  std::string why_not_here;
  std::shared_ptr<const Backend> backend;  // null when why_not_here is not empty
  std::string plugin;                      // path and hash of a plugin's file, else ""
};

// False where it is not usable here.
[[nodiscard]] bool runs_on_gpu(const Selected& selected);

// A plugin that does not come back from being loaded: exit code 2. The thread that loads it is
// left behind (run/watch.h).
class LoadingHung : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Resolves one backend as the command line spells it: the registry, `fake:BEHAVIOUR`,
// `mutant:FAULT`, a plugin's path, peer:NAME or NAME=PATH (ops/plugin.h), which is loaded. An
// unknown name is a UsageError with the nearest known one. Throws LoadingHung after so many
// seconds.
[[nodiscard]] Selected select_backend(const std::string& spelling,
                                      double most_seconds = VerifySettings{}.timeout_s);

// The same error, without making the backend or loading the plugin.
void check_backend(const std::string& spelling);

// The sentence of one of this program, no plugin, without making it; "" = usable.
[[nodiscard]] std::string why_not_here(const std::string& spelling);

// Its name in rows: for a plugin NAME, or the file's name; else the spelling itself.
[[nodiscard]] std::string backend_name(const std::string& spelling);

// The names a case runs when neither the scenario nor the command line names any: every usable
// device backend, or the host's when there is no GPU.
[[nodiscard]] std::vector<std::string> default_backends();

// Every usable backend of the registry: what `verify` proves.
[[nodiscard]] std::vector<std::string> usable_backends();

}  // namespace lora_bench
