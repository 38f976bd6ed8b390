#pragma once

#include <string>

#include "run/run.h"

namespace lora_bench {

// "34 rows: 30 PASSED, 4 SKIPPED; 2 missed a threshold; exit 3 (...)", and how the run ended.
[[nodiscard]] std::string run_summary(const RunReport& report);

// What is wrong, whole: message, first wrong elements, command; at most so many rows, "" = none.
[[nodiscard]] std::string failure_report(const std::vector<Row>& rows, std::size_t most);

// For `verify`: per backend and dtype how many of each status and the worst share of the bound.
[[nodiscard]] std::string proof_table(const std::vector<Row>& rows);

// Below it: "SKIPPED on naive: 34 cases: no GPU", a line a reason; "" = none was skipped.
[[nodiscard]] std::string skip_reasons(const std::vector<Row>& rows);

// One word on what an exit code means, as in docs/exit-codes.md.
[[nodiscard]] std::string meaning(ExitCode code);

}  // namespace lora_bench
