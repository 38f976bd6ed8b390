#pragma once

#include <string>
#include <string_view>

namespace lora_bench {

struct BuildFacts {
  std::string_view version;  // "0.1.0"
  std::string_view commit;   // short hash, or "unknown" outside git
  bool dirty = false;
  std::string_view build_type;          // "Release"
  std::string_view compiler;            // "GNU 12.2.0"
  std::string_view cuda_compiler;       // "NVIDIA 13.0.88", or "none"
  std::string_view cuda_architectures;  // "90a", or ""
  std::string_view dependencies;        // "CLI11 2.1.2, fmt 9.1.0, ..."
};
[[nodiscard]] const BuildFacts& build_facts();

}  // namespace lora_bench
