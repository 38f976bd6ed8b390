#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "report/row.h"

namespace lora_bench {

bool same_device(const Context& left, const Context& right) {
  return left.device_kind == right.device_kind && left.device_name == right.device_name &&
         left.device_identity == right.device_identity;
}

std::string origin_of(const Context& context) {
  return fmt::format("{}", fmt::join({context.device_identity, context.driver, context.tool_version,
                                      context.commit, context.build},
                                     "|"));
}

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

std::string asked_of_rows(const std::vector<std::string>& argv) {
  const std::string threshold = "--threshold";
  std::vector<std::string> asked;
  for (std::size_t i = 0; i < argv.size(); ++i) {
    const std::string& word = argv[i];
    if (word == "--no-time" || word == "--relations" || word.starts_with(threshold + "=")) {
      asked.push_back(word);
    } else if (word == threshold && i + 1 < argv.size()) {
      asked.push_back(threshold + "=" + argv[i + 1]);
    }
  }
  std::sort(asked.begin(), asked.end());
  return fmt::format("{}", fmt::join(asked, " "));
}

}  // namespace lora_bench
