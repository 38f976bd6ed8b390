#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/naive/naive.h"

namespace lora_bench::kernels {

template <typename T, typename H>
cudaError_t launch_shrink_as(const ShrinkParams& params, const NaiveTuning& tuning,
                             cudaStream_t stream);
template <typename T, typename H>
cudaError_t launch_expand_as(const ExpandParams& params, const NaiveTuning& tuning,
                             cudaStream_t stream);

namespace {

// Calls `launch` with the types that stand for the pair; instantiated in naive_<dtype>.cu.
template <typename Launch>
cudaError_t visit_types(Number number, Number intermediate, Launch launch) {
  const bool wide = intermediate == Number::kFp32;
  if (!wide && intermediate != number) {
    return cudaErrorInvalidValue;
  }
  switch (number) {
    case Number::kFp32:
      return launch.template operator()<float, float>();
    case Number::kBf16:
      return wide ? launch.template operator()<__nv_bfloat16, float>()
                  : launch.template operator()<__nv_bfloat16, __nv_bfloat16>();
    case Number::kFp16:
      return wide ? launch.template operator()<__half, float>()
                  : launch.template operator()<__half, __half>();
  }
  return cudaErrorInvalidValue;
}

}  // namespace

cudaError_t launch_naive_shrink(Number number, Number intermediate, const ShrinkParams& params,
                                const NaiveTuning& tuning, cudaStream_t stream) {
  return visit_types(number, intermediate, [&]<typename T, typename H>() {
    return launch_shrink_as<T, H>(params, tuning, stream);
  });
}

cudaError_t launch_naive_expand(Number number, Number intermediate, const ExpandParams& params,
                                const NaiveTuning& tuning, cudaStream_t stream) {
  return visit_types(number, intermediate, [&]<typename T, typename H>() {
    return launch_expand_as<T, H>(params, tuning, stream);
  });
}

}  // namespace lora_bench::kernels
