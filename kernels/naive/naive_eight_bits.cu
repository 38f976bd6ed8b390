#include "kernels/naive/naive.cuh"

namespace lora_bench::kernels {
namespace {

// Calls `launch` with a type of eight bits.
template <typename Launch>
cudaError_t visit_eight_bits(WeightNumber number, Launch launch) {
  switch (number) {
    case WeightNumber::kE4m3:
      return launch.template operator()<E4m3>();
    case WeightNumber::kE5m2:
      return launch.template operator()<E5m2>();
    default:
      return cudaErrorInvalidValue;
  }
}

// The same with one of more bits.
template <typename Launch>
cudaError_t visit_more_bits(Number number, Launch launch) {
  switch (number) {
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

cudaError_t launch_naive_shrink_eight_bits(WeightNumber x, WeightNumber weights, Number h,
                                           const ShrinkParams& params, const NaiveStrides& strides,
                                           const NaiveScales& scales,
                                           const NaiveRowScales& scales_of_x,
                                           const NaiveTuning& tuning, cudaStream_t stream) {
  if (tuning.blocks == 0) {
    return cudaSuccess;
  }
  const auto blocks = static_cast<unsigned>(tuning.blocks);
  const auto threads = static_cast<unsigned>(tuning.threads_per_block);
  return visit_eight_bits(x, [&]<typename X>() {
    return visit_eight_bits(weights, [&]<typename W>() {
      return visit_more_bits(h, [&]<typename H>() {
        naive_shrink<X, W, H><<<blocks, threads, 0, stream>>>(params, strides, scales, scales_of_x);
        return cudaGetLastError();
      });
    });
  });
}

cudaError_t launch_naive_expand_eight_bits(Number y, WeightNumber weights, WeightNumber h,
                                           const ExpandParams& params, const NaiveStrides& strides,
                                           const NaiveScales& scales,
                                           const NaiveRowScales& scales_of_h,
                                           const NaiveTuning& tuning, cudaStream_t stream) {
  if (tuning.blocks == 0) {
    return cudaSuccess;
  }
  const auto blocks = static_cast<unsigned>(tuning.blocks);
  const auto threads = static_cast<unsigned>(tuning.threads_per_block);
  return visit_more_bits(y, [&]<typename Y>() {
    return visit_eight_bits(weights, [&]<typename W>() {
      return visit_eight_bits(h, [&]<typename H>() {
        naive_expand<Y, W, H><<<blocks, threads, 0, stream>>>(params, strides, scales, scales_of_h);
        return cudaGetLastError();
      });
    });
  });
}

}  // namespace lora_bench::kernels
