#pragma once

#include <map>
#include <string>
#include <vector>

#include "scenario/checks.h"
#include "scenario/scenario.h"

namespace lora_bench {

// models.yaml, read when it is first asked for.
class Models {
 public:
  // `diagnostics` of the scenario: what is wrong with models.yaml is no matter of one case.
  explicit Models(Diagnostics& diagnostics) : diagnostics_(diagnostics) {}

  // The layers of a model; empty when there is no such model (resolve() then says so).
  [[nodiscard]] std::vector<std::string> layers_of(const std::string& model);
  [[nodiscard]] const std::vector<ModelLayer>& all();

 private:
  Diagnostics& diagnostics_;
  bool read_ = false;
  std::vector<ModelLayer> layers_;
};

// A case before anything is read into it, where the defaults of case.h are not those of a scenario.
[[nodiscard]] Case default_case();

// Fills in what follows from other fields: shapes of named layers, strides, max_rank, the law of
// prefill. False, with a complaint, when the case has no layer.
[[nodiscard]] bool resolve(Case& spec, const CaseChecker& checker, Models& models);

// The text of a models.yaml; throws UsageError with what is wrong in it.
[[nodiscard]] std::vector<ModelLayer> parse_models(const std::string& text,
                                                   const std::string& file);

// The names of the layers of each model of such a text, then those that its `lacks` has: parts of
// the model that are no layer here, so that no sum of its layers is a step.
[[nodiscard]] std::map<std::string, std::vector<std::string>> parse_parts(const std::string& text,
                                                                          const std::string& file);

}  // namespace lora_bench
