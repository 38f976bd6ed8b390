#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "report/row.h"

namespace lora_bench {

// The layers of one step of a model together: rows of op layer that differ in the layer alone, each
// as often as the model has it.
struct ModelStep {
  std::string scenario;
  std::string step;  // the case without its layer
  std::string backend, model;
  std::string origin;  // of its first row
  std::int64_t repetition = 0;
  std::int64_t tp = 1;
  bool fully_sharded = false;
  std::int64_t tokens = 0;
  std::string layers;  // "32 qkv + 32 o"
  double base_us = 0, layer_us = 0;
  double tax_us = 0;      // of the layers whose tax is above its noise
  double below_us = 0;    // the noise of the others, whose taxes are within plus or minus that
  std::string missing;    // "o is FAILED": then there is no sum
  std::string never_run;  // "gate_up, experts": of the model, but in no step of the scenario
};

// The layers of each model that is known, "qkv", "o", ..., and what else it runs, by its name.
using LayersOfModels = std::map<std::string, std::vector<std::string>>;

// Steps of at least two layers, in the order of their first row. `all`: rows that tell which layers
// the model has in a scenario, also those that are not shown. A step that lacks one has no sum, nor
// one with two rows of a layer, or with rows of two machines, builds, batches or ways to time. The
// sum of one that lacks a layer of `models` says so: where a scenario asks for some layers alone
// that is what they cost, but no step. Where no layer was timed at all there are none.
[[nodiscard]] std::vector<ModelStep> model_steps(const std::vector<Row>& rows,
                                                 const std::vector<Row>& all,
                                                 const LayersOfModels& models);

// ms a step and, of whole steps, tokens/s with and without adapters, a line a step; "" where there
// is none.
[[nodiscard]] std::string render_model_steps(const std::vector<ModelStep>& steps, bool markdown);

}  // namespace lora_bench
