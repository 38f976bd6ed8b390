#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "kernels/params.h"

// What the launches of `clustered` and `resident` have in common.
namespace lora_bench::kernels {

// A cluster is the first dimension of the grid. The blocks start while the kernel before them in
// the stream ends.
template <typename Plan>
cudaError_t launch_clusters(void (*kernel)(ShrinkParams, ExpandParams, Plan), dim3 grid, int warps,
                            int shared_bytes, const ShrinkParams& shrink,
                            const ExpandParams& expand, const Plan& plan, cudaStream_t stream) {
  cudaFuncAttributes code = {};
  cudaError_t error = cudaFuncGetAttributes(&code, kernel);
  if (error == cudaSuccess && code.ptxVersion < 90) {
    error = cudaErrorNotSupported;  // no clusters in code for an older architecture
  }
  if (error == cudaSuccess) {
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  }
  if (error == cudaSuccess && grid.x > 8) {
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  }
  if (error != cudaSuccess) {
    return error;
  }
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim.x = grid.x;
  attributes[0].val.clusterDim.y = 1;
  attributes[0].val.clusterDim.z = 1;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(32 * warps));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  return cudaLaunchKernelEx(&config, kernel, shrink, expand, plan);
}

inline bool has_bias(const ExpandParams& expand) {
  bool bias = false;
  for (int slice = 0; slice < expand.slices; ++slice) {
    bias = bias || expand.bias[slice] != nullptr;
  }
  return bias;
}

}  // namespace lora_bench::kernels
