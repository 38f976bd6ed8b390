#pragma once

#include <cuda_runtime_api.h>

#include "kernels/chunked/chunked_tuning.h"
#include "kernels/params.h"

namespace lora_bench::kernels {

// `number` is bf16 or fp16; the intermediate is fp32 when `wide`, else `number`. `vectors`: x, A
// (or h, B) may be read 16 bytes at a time; `vector_y`: y too.
[[nodiscard]] cudaError_t launch_chunked_shrink(Number number, const ShrinkParams& params,
                                                bool wide, const ChunkedTuning& tuning,
                                                bool vectors, cudaStream_t stream);
[[nodiscard]] cudaError_t launch_chunked_expand(Number number, const ExpandParams& params,
                                                bool wide, const ChunkedTuning& tuning,
                                                bool vectors, bool vector_y, cudaStream_t stream);

}  // namespace lora_bench::kernels
