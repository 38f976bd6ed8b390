#pragma once

#include <map>
#include <string>
#include <vector>

#include "scenario/expand.h"

namespace lora_bench {

// How the ids of a scenario name their fields: by the last part of the path, or by the whole path
// where two swept fields share it.
class CaseNamer {
 public:
  explicit CaseNamer(const std::vector<std::string>& fields_in_ids);

  // "qkv-decode8-rank16": words of model, layers, op, dtype, skew and order alone, numbers behind
  // their field, anything else as field=value.
  [[nodiscard]] std::string id(const Point& point, const std::string& fallback) const;

 private:
  [[nodiscard]] std::string part(const Assignment& assignment) const;
  std::map<std::string, std::string> short_names_;
};

// Swept fields and their values as text.
[[nodiscard]] std::map<std::string, std::string> point_of(const Point& point);

}  // namespace lora_bench
