#include "scenario/diagnostics.h"

#include <algorithm>
#include <tuple>

namespace lora_bench {

void Diagnostics::add(Location where, std::string what, std::string allowed,
                      std::string suggestion) {
  Diagnostic diagnostic{std::move(where), std::move(what), std::move(allowed),
                        std::move(suggestion)};
  if (seen_.insert(to_string(diagnostic)).second) {
    diagnostics_.push_back(std::move(diagnostic));
  }
}

void Diagnostics::add_all(const std::vector<Diagnostic>& others) {
  for (const Diagnostic& other : others) {
    add(other.where, other.what, other.allowed, other.suggestion);
  }
}

void Diagnostics::throw_if_any() {
  if (diagnostics_.empty()) {
    return;
  }
  std::stable_sort(diagnostics_.begin(), diagnostics_.end(),
                   [](const Diagnostic& left, const Diagnostic& right) {
                     return std::tie(left.where.file, left.where.line, left.where.column) <
                            std::tie(right.where.file, right.where.line, right.where.column);
                   });
  throw UsageError(std::move(diagnostics_));
}

}  // namespace lora_bench
