#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/row.h"

namespace lora_bench {

// Of a row whose time made the ceilings be measured anew: a warning in it, for every stored file.
void warn_of_ceilings_anew(Row& row);

// When the last row carries that warning: how many rows before it, of the same side of the machine,
// keep floors of the old ceilings.
[[nodiscard]] std::int64_t rows_of_old_ceilings(const std::vector<Row>& rows);
[[nodiscard]] std::string note_on_ceilings_anew(std::int64_t rows, const std::string& device);

}  // namespace lora_bench
