#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/bgmv/bgmv.h"

namespace lora_bench::kernels {

// Instantiated in bgmv_<dtype>.cu.
template <typename T, typename H>
cudaError_t launch_bgmv_shrink_as(const ShrinkParams& params, const BgmvShrinkTuning& tuning,
                                  bool vectors, cudaStream_t stream);
template <typename T, typename H>
cudaError_t launch_bgmv_expand_as(const ExpandParams& params, const BgmvExpandTuning& tuning,
                                  bool vectors, cudaStream_t stream);

namespace {

// Calls `launch` with the types that stand for the pair.
template <typename Launch>
cudaError_t visit_types(Number number, Number intermediate, Launch launch) {
  const bool wide = intermediate == Number::kFp32;
  if (number == Number::kFp32 || (!wide && intermediate != number)) {
    return cudaErrorInvalidValue;
  }
  if (number == Number::kBf16) {
    return wide ? launch.template operator()<__nv_bfloat16, float>()
                : launch.template operator()<__nv_bfloat16, __nv_bfloat16>();
  }
  return wide ? launch.template operator()<__half, float>()
              : launch.template operator()<__half, __half>();
}

}  // namespace

cudaError_t launch_bgmv_shrink(Number number, Number intermediate, const ShrinkParams& params,
                               const BgmvShrinkTuning& tuning, bool vectors, cudaStream_t stream) {
  return visit_types(number, intermediate, [&]<typename T, typename H>() {
    return launch_bgmv_shrink_as<T, H>(params, tuning, vectors, stream);
  });
}

cudaError_t launch_bgmv_expand(Number number, Number intermediate, const ExpandParams& params,
                               const BgmvExpandTuning& tuning, bool vectors, cudaStream_t stream) {
  return visit_types(number, intermediate, [&]<typename T, typename H>() {
    return launch_bgmv_expand_as<T, H>(params, tuning, vectors, stream);
  });
}

}  // namespace lora_bench::kernels
