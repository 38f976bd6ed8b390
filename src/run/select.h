#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ops/backend.h"
#include "scenario/case.h"

namespace lora_bench {

// A backend that was asked for: usable, or with the sentence that its rows will carry.
struct Selected {
  std::string name;
  std::string why_not_here;
  std::shared_ptr<const Backend> backend;  // null when why_not_here is not empty
};

// Resolves one name: the registry, `fake:BEHAVIOUR`, `mutant:FAULT`. An unknown name is a
// UsageError with the nearest known one.
[[nodiscard]] Selected select_backend(const std::string& name);

// The same error, without making the backend.
void check_backend(const std::string& name);

// The names a case runs when neither the scenario nor the command line names any: every usable
// device backend, or the host's when there is no GPU.
[[nodiscard]] std::vector<std::string> default_backends();

// Every usable backend of the registry: what `verify` proves.
[[nodiscard]] std::vector<std::string> usable_backends();

}  // namespace lora_bench
