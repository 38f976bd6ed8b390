#pragma once

#include <type_traits>

#include "kernels/paired/paired.h"
#include "kernels/paired/paired_expand.cuh"
#include "kernels/paired/paired_shrink.cuh"

// Every shape that is compiled.
namespace lora_bench::kernels {

template <typename Params, typename Plan>
cudaError_t launch_paired(void (*kernel)(Params, Plan), std::int64_t blocks, int threads,
                          int shared_bytes, bool linked, cudaStream_t stream,
                          const std::type_identity_t<Params>& params,
                          const std::type_identity_t<Plan>& plan) {
  if (blocks == 0) {
    return cudaSuccess;
  }
  if (blocks > 2147483647) {
    return cudaErrorInvalidConfiguration;
  }
  if (shared_bytes > 0) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    if (error != cudaSuccess) {
      return error;
    }
  }
  if (linked) {  // code for an older architecture has no wait
    cudaFuncAttributes code = {};
    const cudaError_t error = cudaFuncGetAttributes(&code, kernel);
    if (error != cudaSuccess) {
      return error;
    }
    linked = code.ptxVersion >= 90;
  }
  cudaLaunchAttribute link = {};
  link.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  link.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = stream;
  config.attrs = &link;
  config.numAttrs = linked ? 1U : 0U;
  return cudaLaunchKernelEx(&config, kernel, params, plan);
}

template <typename T>
cudaError_t launch_paired_shrink_as(const ShrinkParams& params, const PairedShrinkTuning& tuning,
                                    const PairedShrinkPlan& plan, bool vectors,
                                    cudaStream_t stream) {
  const auto launch = [&]<bool kVectors, int kRows, int kLanes, int kStages>() {
    return launch_paired(paired_shrink<T, kVectors, kRows, kLanes, kStages>, tuning.blocks,
                         kPairedShrinkThreads, paired_shared_bytes<kRows, kLanes, kStages>(), false,
                         stream, params, plan);
  };
  if (!vectors) {
    return tuning.row_fragments == 1 && tuning.lane_fragments == 2
               ? launch.template operator()<false, 1, 2, 4>()
               : cudaErrorInvalidValue;
  }
  switch (tuning.row_fragments * 100 + tuning.lane_fragments * 10 + tuning.stages) {
    case 119:
      return launch.template operator()<true, 1, 1, 9>();
    case 114:
      return launch.template operator()<true, 1, 1, 4>();
    case 129:
      return launch.template operator()<true, 1, 2, 9>();
    case 124:
      return launch.template operator()<true, 1, 2, 4>();
    case 144:
      return launch.template operator()<true, 1, 4, 4>();
    case 424:
      return launch.template operator()<true, 4, 2, 4>();
    case 444:
      return launch.template operator()<true, 4, 4, 4>();
    case 464:
      return launch.template operator()<true, 4, 6, 4>();
    case 483:
      return launch.template operator()<true, 4, 8, 3>();
    default:
      return cudaErrorInvalidValue;
  }
}

template <typename T, typename H>
cudaError_t launch_paired_expand_as(const ExpandParams& params, const PairedExpandTuning& tuning,
                                    const PairedExpandPlan& plan, const PairedExpandAccess& access,
                                    cudaStream_t stream) {
  const auto launch = [&]<bool kSums>() {
    const bool few = tuning.row_fragments == 1;
    const auto kernel =
        access.vectors
            ? (few ? paired_expand<T, H, kSums, true, 1> : paired_expand<T, H, kSums, true, 2>)
            : (few ? paired_expand<T, H, kSums, false, 1> : paired_expand<T, H, kSums, false, 2>);
    return launch_paired(kernel, tuning.blocks, kPairedExpandThreads, tuning.shared_bytes,
                         access.linked, stream, params, plan);
  };
  // A plain fp32 h is the one part of a sum.
  if constexpr (sizeof(H) == sizeof(float)) {
    return launch.template operator()<true>();
  } else {
    return plan.sums != nullptr ? launch.template operator()<true>()
                                : launch.template operator()<false>();
  }
}

}  // namespace lora_bench::kernels
