#include "kernels/ordered/ordered.h"

#include "kernels/ordered/ordered.cuh"

namespace lora_bench::kernels {
namespace {

template <typename T, typename H>
cudaError_t shrink_as(const ShrinkParams& params, const OrderedShrinkTuning& tuning,
                      cudaStream_t stream) {
  ordered_shrink<T, H><<<static_cast<unsigned>(tuning.blocks), kOrderedShrinkThreads, 0, stream>>>(
      params, tuning.lane_tiles);
  return cudaGetLastError();
}

template <typename T, typename H>
cudaError_t expand_as(const ExpandParams& params, const OrderedExpandTuning& tuning,
                      cudaStream_t stream) {
  ordered_expand<T, H><<<static_cast<unsigned>(tuning.blocks), kOrderedExpandThreads, 0, stream>>>(
      params, tuning.column_tiles);
  return cudaGetLastError();
}

// Calls `launch` with values of the two types.
template <typename Launch>
cudaError_t with_types(std::int64_t blocks, Number number, Number intermediate,
                       const Launch& launch) {
  if (blocks == 0) {
    return cudaSuccess;
  }
  if (blocks > 2147483647) {
    return cudaErrorInvalidConfiguration;
  }
  const bool wide = intermediate == Number::kFp32;
  if (!wide && intermediate != number) {
    return cudaErrorInvalidValue;
  }
  switch (number) {
    case Number::kBf16:
      return wide ? launch(__nv_bfloat16(), float()) : launch(__nv_bfloat16(), __nv_bfloat16());
    case Number::kFp16:
      return wide ? launch(__half(), float()) : launch(__half(), __half());
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t launch_ordered_shrink(Number number, Number intermediate, const ShrinkParams& params,
                                  const OrderedShrinkTuning& tuning, cudaStream_t stream) {
  return with_types(tuning.blocks, number, intermediate, [&](auto operand, auto hidden) {
    return shrink_as<decltype(operand), decltype(hidden)>(params, tuning, stream);
  });
}

cudaError_t launch_ordered_expand(Number number, Number intermediate, const ExpandParams& params,
                                  const OrderedExpandTuning& tuning, cudaStream_t stream) {
  return with_types(tuning.blocks, number, intermediate, [&](auto operand, auto hidden) {
    return expand_as<decltype(operand), decltype(hidden)>(params, tuning, stream);
  });
}

}  // namespace lora_bench::kernels
