#pragma once

#include <cstdint>
#include <vector>

#include "ops/cpu_kernels.h"
#include "workload/problem.h"

namespace lora_bench {

// A rectangle of one product for one thread. How the work is cut never changes a result.
struct CpuItem {
  std::int32_t slot = 0;
  std::int64_t first_row = 0, rows = 0;        // in token_order
  std::int64_t slice = 0;                      // of an expand item
  std::int64_t first_column = 0, columns = 0;  // expand: of the slice; shrink: lanes, slice-major
                                               // over the slices that have columns
};

// What both products need to know of the slices.
struct CpuSlices {
  std::vector<std::int64_t> live;          // slices with columns
  std::vector<std::int64_t> column_start;  // [slices], in y
};
[[nodiscard]] CpuSlices cpu_slices(const Problem& problem);

[[nodiscard]] std::vector<CpuItem> shrink_items(const Problem& problem, const CpuKernels& kernels,
                                                int threads);
[[nodiscard]] std::vector<CpuItem> expand_items(const Problem& problem, const CpuKernels& kernels,
                                                int threads);

}  // namespace lora_bench
