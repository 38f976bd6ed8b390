#pragma once

#include <cuda_runtime_api.h>

#include "kernels/params.h"
#include "kernels/tile/shrink_tile.h"

namespace lora_bench::kernels {

// h = 0 in the lanes that a shrink with Combine::kAtomic will add to.
[[nodiscard]] cudaError_t launch_zero_lanes(const ShrinkParams& params, cudaStream_t stream);
// h = scale * the `split` parts of Combine::kOrdered, added in ascending order. `number` is that of
// h when the store is not wide.
[[nodiscard]] cudaError_t launch_combine(Number number, const ShrinkParams& params,
                                         const ShrinkStore& store, std::int64_t split,
                                         cudaStream_t stream);

}  // namespace lora_bench::kernels
