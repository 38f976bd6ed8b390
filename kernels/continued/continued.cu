#include "kernels/continued/continued_hidden.cuh"

namespace lora_bench::kernels {
namespace {

bool begins(const void* at) { return reinterpret_cast<std::uintptr_t>(at) % 16 == 0; }

template <int kTiles>
cudaError_t launch_as(const ContinuedParams& params, const ContinuedShared& shared, int clusters,
                      cudaStream_t stream) {
  const auto kernel = continued_hidden<kTiles>;
  if (const cudaError_t error = cudaFuncSetAttribute(
          kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared.bytes));
      error != cudaSuccess) {
    return error;
  }
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = kContinuedSplits;
  attributes[1].val.clusterDim.y = 1;
  attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(clusters * kContinuedSplits));
  config.blockDim = dim3(kHiddenThreads);
  config.dynamicSmemBytes = static_cast<std::size_t>(shared.bytes);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  return cudaLaunchKernelEx(&config, kernel, params);
}

}  // namespace

bool continued_copies(const ContinuedParams& params) {
  bool all = begins(params.x) && begins(params.w);
  for (int slice = 0; slice < params.expand.slices; ++slice) {
    all = all && begins(params.shrink.a[slice]) && begins(params.expand.b[slice]);
  }
  return all;
}

cudaError_t launch_continued(ContinuedParams params, int multiprocessors, cudaStream_t stream) {
  const ContinuedShared shared =
      continued_shared(params.shrink.in_features, params.shrink.slices * params.shrink.max_rank);
  params.columns_each = static_cast<std::int32_t>(shared.columns_each);
  params.pitch = static_cast<std::int32_t>(shared.pitch);
  // Those that write B: half as many blocks as multiprocessors.
  const int writers = (multiprocessors / 2 + kContinuedSplits - 1) / kContinuedSplits;
  const int clusters = params.tiles + (params.few + kWarps - 1) / kWarps + writers;
  switch (shared.lanes / 8) {
    case 2:
      return launch_as<2>(params, shared, clusters, stream);
    case 4:
      return launch_as<4>(params, shared, clusters, stream);
    case 6:
      return launch_as<6>(params, shared, clusters, stream);
    case 8:
      return launch_as<8>(params, shared, clusters, stream);
    case 12:
      return launch_as<12>(params, shared, clusters, stream);
    case 16:
      return launch_as<16>(params, shared, clusters, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace lora_bench::kernels
