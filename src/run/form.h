#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "run/safetensors.h"
#include "scenario/case.h"
#include "workload/metadata.h"

namespace lora_bench {

// The batch of a case, whatever its op, in the form that published kernels take.
struct FormOfCase {
  MetadataStep step;
  std::vector<FilledArray> outputs;  // in the order of outputs_of
};
[[nodiscard]] FormOfCase form_of(const Case& spec, Form form);

// Each array with its first promised entries, what the engine has first; `width` columns
// wide, and all of them where it is 0.
[[nodiscard]] std::string form_table(const Case& spec, const FormOfCase& form, int width);
// One line of JSON: sizes, and of every array its published name, its type and all its entries.
[[nodiscard]] std::string form_json(const Case& spec, const FormOfCase& form);

// The arrays as tensors "kernel.token_order", those that the engine has "engine.slot_of_request";
// `kept` holds what they point at.
[[nodiscard]] std::vector<NamedTensor> form_tensors(const FormOfCase& form,
                                                    std::vector<std::vector<std::byte>>& kept);

}  // namespace lora_bench
