#pragma once

#include <cuda_runtime_api.h>

#include "kernels/grouped/grouped_tuning.h"
#include "kernels/params.h"

namespace lora_bench::kernels {

// `number` is bf16 or fp16; the intermediate is fp32 when `store.wide`, else `number`. `vectors`:
// x, A (or h, B) may be read 16 bytes at a time; `vector_y`: y too.
[[nodiscard]] cudaError_t launch_grouped_shrink(Number number, const ShrinkParams& params,
                                                const ShrinkStore& store,
                                                const GroupedTuning& tuning, bool vectors,
                                                cudaStream_t stream);
[[nodiscard]] cudaError_t launch_grouped_expand(Number number, const ExpandParams& params,
                                                bool wide, const GroupedTuning& tuning,
                                                bool vectors, bool vector_y, cudaStream_t stream);

}  // namespace lora_bench::kernels
