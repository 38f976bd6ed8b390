#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/naive/naive.h"

namespace lora_bench::kernels {

template <typename X>
cudaError_t launch_shrink_of(const NaiveNumbers& numbers, const ShrinkParams& params,
                             const NaiveStrides& strides, const NaiveScales& scales,
                             const NaiveTuning& tuning, cudaStream_t stream);
template <typename Y>
cudaError_t launch_expand_of(const NaiveNumbers& numbers, const ExpandParams& params,
                             const NaiveStrides& strides, const NaiveScales& scales,
                             const NaiveTuning& tuning, cudaStream_t stream);

namespace {

// Calls `launch` with the type of the rows; instantiated in naive_<dtype>.cu.
template <typename Launch>
cudaError_t visit_rows(const NaiveNumbers& numbers, Launch launch) {
  if (numbers.h != Number::kFp32 && numbers.h != numbers.rows) {
    return cudaErrorInvalidValue;
  }
  switch (numbers.rows) {
    case Number::kFp32:
      return launch.template operator()<float>();
    case Number::kBf16:
      return launch.template operator()<__nv_bfloat16>();
    case Number::kFp16:
      return launch.template operator()<__half>();
  }
  return cudaErrorInvalidValue;
}

}  // namespace

cudaError_t launch_naive_shrink(const NaiveNumbers& numbers, const ShrinkParams& params,
                                const NaiveStrides& strides, const NaiveScales& scales,
                                const NaiveTuning& tuning, cudaStream_t stream) {
  return visit_rows(numbers, [&]<typename X>() {
    return launch_shrink_of<X>(numbers, params, strides, scales, tuning, stream);
  });
}

cudaError_t launch_naive_expand(const NaiveNumbers& numbers, const ExpandParams& params,
                                const NaiveStrides& strides, const NaiveScales& scales,
                                const NaiveTuning& tuning, cudaStream_t stream) {
  return visit_rows(numbers, [&]<typename Y>() {
    return launch_expand_of<Y>(numbers, params, strides, scales, tuning, stream);
  });
}

}  // namespace lora_bench::kernels
