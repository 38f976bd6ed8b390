#pragma once

#include <cuda_runtime_api.h>

#include "kernels/bgmv/bgmv_tuning.h"
#include "kernels/params.h"

namespace lora_bench::kernels {

// `number` is the storage of x, A, B, bias and y: kBf16 or kFp16; `intermediate`, of h, is kFp32 or
// `number`: any other pair is cudaErrorInvalidValue. `vectors`: every row of
// x, A, h and B starts on 16 bytes; else pointers need the alignment of their element only. The
// segment form needs tensor cores that take bf16 and tf32 (compute capability 8.0).
[[nodiscard]] cudaError_t launch_bgmv_shrink(Number number, Number intermediate,
                                             const ShrinkParams& params,
                                             const BgmvShrinkTuning& tuning, bool vectors,
                                             cudaStream_t stream);
[[nodiscard]] cudaError_t launch_bgmv_expand(Number number, Number intermediate,
                                             const ExpandParams& params,
                                             const BgmvExpandTuning& tuning, bool vectors,
                                             cudaStream_t stream);

}  // namespace lora_bench::kernels
