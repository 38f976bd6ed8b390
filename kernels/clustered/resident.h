#pragma once

#include <cuda_runtime_api.h>

#include "kernels/clustered/resident_tuning.h"
#include "kernels/params.h"

namespace lora_bench::kernels {

// What launch_clustered computes, bit for bit, and under the same conditions.
[[nodiscard]] cudaError_t launch_resident(Number number, Number intermediate,
                                          const ShrinkParams& shrink, const ExpandParams& expand,
                                          const ResidentTuning& tuning, bool linked,
                                          cudaStream_t stream);

// What launch_clustered_eight computes, bit for bit, and under the same conditions.
[[nodiscard]] cudaError_t launch_resident_eight(
    Number rows, Number intermediate, const ShrinkParams& shrink, const ExpandParams& expand,
    const WeightScales& scales, const ResidentTuning& tuning, bool linked, cudaStream_t stream);

}  // namespace lora_bench::kernels
