#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "report/row.h"

namespace lora_bench {

// RFC 4180 with '\n' line ends: every column of the registry but samples_us, in its order.
[[nodiscard]] const std::string& csv_header();
[[nodiscard]] std::string csv_record(const Row& row);

// Bytes up to the end of the last whole record: a newline inside quotes does not end one.
[[nodiscard]] std::size_t csv_whole_bytes(std::string_view text);

}  // namespace lora_bench
