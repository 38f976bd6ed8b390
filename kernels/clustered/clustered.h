#pragma once

#include <cuda_runtime_api.h>

#include "kernels/clustered/clustered_tuning.h"
#include "kernels/params.h"

namespace lora_bench::kernels {

// The whole linear op: y (+)= expand(shrink(x)); h goes nowhere else. Needs compute capability
// 9.0; x, A and y with rows that start on 16 bytes, columns of every slice of y too, B that does,
// max_rank a multiple of 4 and all widths of 8. x, A, B and y are `number`, kBf16 or kFp16; h is
// multiplied as `intermediate`, kFp32 or `number`. `linked`: starts while the kernel before it in
// the stream still runs, and reads plan, ranks, scales and weights before that has ended, so that
// kernel must not write them.
[[nodiscard]] cudaError_t launch_clustered(Number number, Number intermediate,
                                           const ShrinkParams& shrink, const ExpandParams& expand,
                                           const ClusteredTuning& tuning, bool linked,
                                           cudaStream_t stream);

// The same with A and B of eight bits and scales; x and y are `rows`, lanes of A a multiple of 16
// long. Scales of rows of B begin on 16 bytes. The tuning is for `weight_bytes` 1.
[[nodiscard]] cudaError_t launch_clustered_eight(
    Number rows, Number intermediate, const ShrinkParams& shrink, const ExpandParams& expand,
    const WeightScales& scales, const ClusteredTuning& tuning, bool linked, cudaStream_t stream);

}  // namespace lora_bench::kernels
