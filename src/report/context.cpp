#include <fmt/format.h>

#include "report/row.h"

namespace lora_bench {

std::vector<std::string> context_differences(const Context& left, const Context& right) {
  std::vector<std::string> differences;
  const auto check = [&](const char* what, const std::string& a, const std::string& b) {
    if (a != b) {
      differences.push_back(fmt::format("{} differs: '{}' and '{}'", what, a, b));
    }
  };
  check("device", left.device_name, right.device_name);
  if (left.device_name == right.device_name) {
    check("device identity", left.device_identity, right.device_identity);
  }
  check("driver", left.driver, right.driver);
  check("CUDA runtime", left.runtime, right.runtime);
  check("tool version", left.tool_version, right.tool_version);
  check("build type", left.build, right.build);
  check("seed", std::to_string(left.seed), std::to_string(right.seed));
  for (const auto& [scenario, hash] : left.scenario_hash) {
    const auto other = right.scenario_hash.find(scenario);
    if (other != right.scenario_hash.end() && other->second != hash) {
      differences.push_back(fmt::format("scenario '{}' has another content", scenario));
    }
  }
  return differences;
}

}  // namespace lora_bench
