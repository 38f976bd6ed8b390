#pragma once

#include "kernels/clustered/resident.cuh"
#include "kernels/clustered/resident.h"
#include "kernels/divide_up.h"

// Every shape that is compiled.
namespace lora_bench::kernels {

template <typename T, typename H, bool kBias, int kEights>
cudaError_t launch_resident_with(const ShrinkParams& shrink, const ExpandParams& expand,
                                 const ResidentTuning& tuning, const ResidentPlan& plan,
                                 cudaStream_t stream) {
  const auto kernel = resident<T, H, kBias, kEights>;
  cudaFuncAttributes code = {};
  cudaError_t error = cudaFuncGetAttributes(&code, kernel);
  if (error == cudaSuccess && code.ptxVersion < 90) {
    error = cudaErrorNotSupported;  // no clusters in code for an older architecture
  }
  if (error == cudaSuccess) {
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 tuning.shared_bytes);
  }
  if (error == cudaSuccess && tuning.cluster > 8) {
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  }
  if (error != cudaSuccess) {
    return error;
  }
  const auto blocks = static_cast<unsigned>(tuning.cluster);
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim.x = blocks;
  attributes[0].val.clusterDim.y = 1;
  attributes[0].val.clusterDim.z = 1;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim =
      dim3(blocks, static_cast<unsigned>(tuning.tiles), static_cast<unsigned>(tuning.groups));
  config.blockDim = dim3(static_cast<unsigned>(32 * tuning.warps));
  config.dynamicSmemBytes = static_cast<std::size_t>(tuning.shared_bytes);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  return cudaLaunchKernelEx(&config, kernel, shrink, expand, plan);
}

template <typename T, typename H>
cudaError_t launch_resident_as(const ShrinkParams& shrink, const ExpandParams& expand,
                               const ResidentTuning& tuning, const ResidentPlan& plan,
                               cudaStream_t stream) {
  bool bias = false;
  for (int slice = 0; slice < expand.slices; ++slice) {
    bias = bias || expand.bias[slice] != nullptr;
  }
  const auto launch = [&]<int kEights>() {
    return bias ? launch_resident_with<T, H, true, kEights>(shrink, expand, tuning, plan, stream)
                : launch_resident_with<T, H, false, kEights>(shrink, expand, tuning, plan, stream);
  };
  return tuning.eights == 1 ? launch.template operator()<1>() : launch.template operator()<2>();
}

}  // namespace lora_bench::kernels
