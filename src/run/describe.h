#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "layers/layer_problem.h"
#include "report/row.h"
#include "run/run.h"
#include "scenario/case.h"

namespace lora_bench {

// What a case says of itself, before anything is drawn, and the columns that hold it.
[[nodiscard]] Row describe_spec(const Case& spec, const std::string& backend);
[[nodiscard]] std::vector<std::string_view> columns_of_spec(const Case& spec);
// The same and what is drawn, before any backend runs it.
[[nodiscard]] Row describe_case(const Case& spec, const CaseStep& step, const std::string& backend);

// The command that reruns exactly this row and judges it as this run does.
[[nodiscard]] std::string repro_command(const Case& spec, const std::string& backend,
                                        const RunRequest& request);

}  // namespace lora_bench
