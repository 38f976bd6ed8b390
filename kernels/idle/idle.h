#pragma once

#include <cuda_runtime_api.h>

#include "kernels/params.h"

namespace lora_bench::kernels {

// Zeros in the columns that slices own, of rows without an adapter and of those whose adapter has
// rank 0; `element_bytes` is the size of a number of y. All else that a launch of the op writes
// lies in other rows, so that it may come before or after it.
[[nodiscard]] cudaError_t launch_zero_idle_rows(const ExpandParams& params,
                                                std::int64_t element_bytes, cudaStream_t stream);

}  // namespace lora_bench::kernels
