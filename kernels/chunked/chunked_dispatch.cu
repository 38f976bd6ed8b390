#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/chunked/chunked.h"

namespace lora_bench::kernels {

template <typename T>
cudaError_t launch_chunked_shrink_as(const ShrinkParams& params, bool wide,
                                     const ChunkedTuning& tuning, bool vectors,
                                     cudaStream_t stream);
template <typename T, typename H>
cudaError_t launch_chunked_expand_as(const ExpandParams& params, const ChunkedTuning& tuning,
                                     bool vectors, bool vector_y, cudaStream_t stream);

cudaError_t launch_chunked_shrink(Number number, const ShrinkParams& params, bool wide,
                                  const ChunkedTuning& tuning, bool vectors, cudaStream_t stream) {
  if (tuning.segments * tuning.column_tiles == 0) {
    return cudaSuccess;
  }
  switch (number) {
    case Number::kBf16:
      return launch_chunked_shrink_as<__nv_bfloat16>(params, wide, tuning, vectors, stream);
    case Number::kFp16:
      return launch_chunked_shrink_as<__half>(params, wide, tuning, vectors, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t launch_chunked_expand(Number number, const ExpandParams& params, bool wide,
                                  const ChunkedTuning& tuning, bool vectors, bool vector_y,
                                  cudaStream_t stream) {
  if (tuning.segments * tuning.column_tiles == 0) {
    return cudaSuccess;
  }
  switch (number) {
    case Number::kBf16:
      return wide ? launch_chunked_expand_as<__nv_bfloat16, float>(params, tuning, vectors,
                                                                   vector_y, stream)
                  : launch_chunked_expand_as<__nv_bfloat16, __nv_bfloat16>(params, tuning, vectors,
                                                                           vector_y, stream);
    case Number::kFp16:
      return wide ? launch_chunked_expand_as<__half, float>(params, tuning, vectors, vector_y,
                                                            stream)
                  : launch_chunked_expand_as<__half, __half>(params, tuning, vectors, vector_y,
                                                             stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace lora_bench::kernels
