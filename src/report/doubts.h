#pragma once

#include <string>

#include "report/row.h"

namespace lora_bench {

// What a row says that this tool would not have written, one sentence; "" = nothing. Figures that
// contradict each other were edited, or a clock lied: no verdict should rest on them.
[[nodiscard]] std::string doubt_about(const Row& row);

}  // namespace lora_bench
