#pragma once

#include <cuda_runtime_api.h>

#include "kernels/naive/naive_tuning.h"
#include "kernels/params.h"

namespace lora_bench::kernels {

// `number` is the storage of x, A, B, bias and y; `intermediate`, of h, is kFp32 or `number`: any
// other pair is cudaErrorInvalidValue. Pointers need the alignment of their element only.
[[nodiscard]] cudaError_t launch_naive_shrink(Number number, Number intermediate,
                                              const ShrinkParams& params, const NaiveTuning& tuning,
                                              cudaStream_t stream);
[[nodiscard]] cudaError_t launch_naive_expand(Number number, Number intermediate,
                                              const ExpandParams& params, const NaiveTuning& tuning,
                                              cudaStream_t stream);

}  // namespace lora_bench::kernels
