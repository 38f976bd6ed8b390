#pragma once

#include <cstdint>

#include "ops/backend.h"

namespace lora_bench {

// Where a step asks it, zeros in the columns of the slices of the rows that no adapter acts on;
// else nothing. Such rows are written by nobody else, so that it may come before the op or after.
void zero_idle_rows(const Problem& problem, const Operands& operands, std::int64_t first_row,
                    std::int64_t past_row);
// The same of all rows, enqueued on a stream of a GPU. In a build with CUDA alone.
void enqueue_zero_idle_rows(const Problem& problem, const Operands& operands, Stream stream);

}  // namespace lora_bench
