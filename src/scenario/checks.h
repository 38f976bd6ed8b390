#pragma once

#include <set>
#include <string>
#include <vector>

#include "scenario/settings.h"

namespace lora_bench {

// Complains about the fields of one case. A field that could not be read holds its default, so
// nothing is said that follows from one.
class CaseChecker {
 public:
  // `diagnostics` of the case; `of_file` what was wrong before any case was looked at.
  CaseChecker(const Settings& settings, const std::set<std::string>& broken, Location fallback,
              Diagnostics& diagnostics, const Diagnostics& of_file)
      : settings_(settings),
        broken_(broken),
        fallback_(std::move(fallback)),
        diagnostics_(diagnostics),
        of_file_(of_file) {}

  // Where `path` was set, else the first of `others` that was.
  void fail(const std::string& path, const std::vector<std::string>& others,
            const std::string& what, const std::string& allowed,
            const std::string& suggestion = "") const;

  [[nodiscard]] const Settings& settings() const { return settings_; }
  [[nodiscard]] Diagnostics& diagnostics() const { return diagnostics_; }
  [[nodiscard]] bool nothing_wrong() const { return diagnostics_.empty() && of_file_.empty(); }
  [[nodiscard]] bool is_broken(const std::string& path) const { return broken_.contains(path); }

 private:
  const Settings& settings_;
  const std::set<std::string>& broken_;
  Location fallback_;
  Diagnostics& diagnostics_;
  const Diagnostics& of_file_;
};

// What is wrong with weights of eight bits and their scales.
void check_weights(const Case& spec, const CaseChecker& checker);
// The same of an x, or a given h, of eight bits.
void check_activations(const Case& spec, const CaseChecker& checker);
// An h that is quantised where it cannot be.
void check_quantised_h(const Case& spec, const CaseChecker& checker);
// Settings that ask nothing where scales are given.
void check_quantiser(const Case& spec, const CaseChecker& checker);

// What is wrong with experts and with the law by which tokens choose them.
void check_experts(const Case& spec, const CaseChecker& checker, FieldContext& context);

// Everything that is wrong with a case whose fields are each in range.
void check_combinations(const Case& spec, bool has_layer, const CaseChecker& checker,
                        FieldContext& context);

}  // namespace lora_bench
