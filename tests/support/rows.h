#pragma once

#include <vector>

#include "report/row.h"

// One fixed run for golden files: two cases with two backends, a failed, a skipped and a warned
// row.
lora_bench::Context fixed_context();
std::vector<lora_bench::Row> fixed_rows();

// Every field drawn from `seed`: awkward texts, huge and tiny figures, absent values.
lora_bench::Row random_row(std::uint64_t seed);

// Repeats of a row, their times evenly over +-`spread` of its time.
std::vector<lora_bench::Row> repeats_like(const lora_bench::Row& row, double spread = 0,
                                          std::int64_t count = 8);
