#pragma once

#include <string>

// Compares with tests/golden/NAME; with LORA_BENCH_UPDATE_GOLDEN=1 in the environment writes it.
// A failure shows the first line that differs.
void check_golden(const std::string& name, const std::string& got);
