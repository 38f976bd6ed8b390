#pragma once

#include <cstdint>
#include <vector>

#include "workload/tensors.h"

namespace lora_bench {

// Rows from `first` on, lanes or outputs, of one slot of the weights of one operand set, and the
// row of x or h that they are multiplied with.
struct RowsOfWeights {
  std::int64_t slot = 0, set = 0, slice = 0, first = 0, token = 0;
};

// The scales of rows that `problem` has as slots with one slice, given the whole that they are
// from: lanes of a shrink, else outputs, whose lanes are all those of the slot. Each row gets
// scales of its own, whichever block it is from, and `problem` says so. So does each row of x or a
// given h, which `problem` has as tokens, where these have scales or factors.
void add_scales_of_rows(const Problem& whole, const Tensors& from,
                        const std::vector<RowsOfWeights>& rows, Problem& problem, Tensors& tensors);

}  // namespace lora_bench
