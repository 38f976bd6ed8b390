#pragma once

#include <cuda_runtime_api.h>

#include "kernels/naive/naive_tuning.h"
#include "kernels/params.h"

namespace lora_bench::kernels {

// The storage of what one op reads and writes: x or y, the weights (A, or B and bias) and h, which
// is kFp32 or as the rows.
struct NaiveNumbers {
  Number rows = Number::kBf16, weights = Number::kBf16, h = Number::kFp32;
};

// Any other h is cudaErrorInvalidValue. Pointers need the alignment of their element only.
[[nodiscard]] cudaError_t launch_naive_shrink(const NaiveNumbers& numbers,
                                              const ShrinkParams& params, const NaiveTuning& tuning,
                                              cudaStream_t stream);
[[nodiscard]] cudaError_t launch_naive_expand(const NaiveNumbers& numbers,
                                              const ExpandParams& params, const NaiveTuning& tuning,
                                              cudaStream_t stream);

}  // namespace lora_bench::kernels
