#pragma once

#include <memory>
#include <string>

#include "ops/backend.h"

struct lora_bench_descriptor;

namespace lora_bench {

// The functions of a descriptor as a Backend: structs of the interface out of ours, errors and
// stray exceptions into CaseError. The descriptor has been checked and outlives the backend.
[[nodiscard]] std::unique_ptr<Backend> make_plugin_backend(std::string name,
                                                           const lora_bench_descriptor& descriptor);

}  // namespace lora_bench
