#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/grouped/grouped.h"

namespace lora_bench::kernels {

template <typename T>
cudaError_t launch_grouped_shrink_as(const ShrinkParams& params, const ShrinkStore& store,
                                     const GroupedTuning& tuning, bool vectors,
                                     cudaStream_t stream);
template <typename T, typename H>
cudaError_t launch_grouped_expand_as(const ExpandParams& params, const GroupedTuning& tuning,
                                     bool vectors, bool vector_y, cudaStream_t stream);

cudaError_t launch_grouped_shrink(Number number, const ShrinkParams& params,
                                  const ShrinkStore& store, const GroupedTuning& tuning,
                                  bool vectors, cudaStream_t stream) {
  if (tuning.row_tiles * tuning.column_tiles == 0) {
    return cudaSuccess;
  }
  switch (number) {
    case Number::kBf16:
      return launch_grouped_shrink_as<__nv_bfloat16>(params, store, tuning, vectors, stream);
    case Number::kFp16:
      return launch_grouped_shrink_as<__half>(params, store, tuning, vectors, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t launch_grouped_expand(Number number, const ExpandParams& params, bool wide,
                                  const GroupedTuning& tuning, bool vectors, bool vector_y,
                                  cudaStream_t stream) {
  if (tuning.row_tiles * tuning.column_tiles == 0) {
    return cudaSuccess;
  }
  switch (number) {
    case Number::kBf16:
      return wide ? launch_grouped_expand_as<__nv_bfloat16, float>(params, tuning, vectors,
                                                                   vector_y, stream)
                  : launch_grouped_expand_as<__nv_bfloat16, __nv_bfloat16>(params, tuning, vectors,
                                                                           vector_y, stream);
    case Number::kFp16:
      return wide ? launch_grouped_expand_as<__half, float>(params, tuning, vectors, vector_y,
                                                            stream)
                  : launch_grouped_expand_as<__half, __half>(params, tuning, vectors, vector_y,
                                                             stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace lora_bench::kernels
