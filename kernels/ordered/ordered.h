#pragma once

#include <cuda_runtime_api.h>

#include "kernels/ordered/ordered_tuning.h"
#include "kernels/params.h"

namespace lora_bench::kernels {

// x, A, B and y are `number`, kBf16 or kFp16; h is `intermediate`, kFp32 or `number`. Needs compute
// capability 8.0 and no alignment beyond that of elements.
[[nodiscard]] cudaError_t launch_ordered_shrink(Number number, Number intermediate,
                                                const ShrinkParams& params,
                                                const OrderedShrinkTuning& tuning,
                                                cudaStream_t stream);
[[nodiscard]] cudaError_t launch_ordered_expand(Number number, Number intermediate,
                                                const ExpandParams& params,
                                                const OrderedExpandTuning& tuning,
                                                cudaStream_t stream);

}  // namespace lora_bench::kernels
