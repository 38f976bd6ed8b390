#pragma once

#include <string>

#include "report/row.h"

namespace lora_bench {

// What a row says that this tool would not have written, one sentence; "" = nothing. Figures that
// contradict each other were edited, or a clock lied: no verdict should rest on them.
[[nodiscard]] std::string doubt_about(const Row& row);

// The same of a row that was stored: no run stores a pass without a proof, or below the floor.
[[nodiscard]] std::string doubt_about_stored(const Row& row);
// Whether two rows agree in cache and mode; one that was not timed may say neither.
[[nodiscard]] bool timed_alike(const Row& left, const Row& right);
// Whether two rows of the same names measured another case: "" or in what they differ.
[[nodiscard]] std::string other_case(const Row& left, const Row& right);

}  // namespace lora_bench
