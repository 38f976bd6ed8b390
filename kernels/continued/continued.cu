#include "kernels/continued/continued_hidden.cuh"

namespace lora_bench::kernels {
namespace {

bool begins(const void* at) { return reinterpret_cast<std::uintptr_t>(at) % 16 == 0; }

template <int kTiles, int kAhead>
struct Launch {
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config = {};

  Launch(const ContinuedShared& shared, cudaStream_t stream) {
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim.x = kContinuedSplits;
    attributes[1].val.clusterDim.y = 1;
    attributes[1].val.clusterDim.z = 1;
    config.gridDim = dim3(kContinuedSplits);
    config.blockDim = dim3(kHiddenThreads);
    config.dynamicSmemBytes = static_cast<std::size_t>(shared.bytes);
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = 2;
  }
  [[nodiscard]] cudaError_t allow() const {
    return cudaFuncSetAttribute(continued_hidden<kTiles, kAhead>,
                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                static_cast<int>(config.dynamicSmemBytes));
  }
  [[nodiscard]] cudaError_t run(const ContinuedParams& params, int clusters) {
    config.gridDim.x = static_cast<unsigned>(clusters * kContinuedSplits);
    return cudaLaunchKernelEx(&config, continued_hidden<kTiles, kAhead>, params);
  }
};

template <int kTiles>
cudaError_t launch_as(const ContinuedParams& params, const ContinuedShared& shared,
                      int multiprocessors, cudaStream_t stream) {
  const int own = params.tiles + (params.few + kWarps - 1) / kWarps;
  if constexpr (kTiles <= 8) {
    Launch<kTiles, 8> at_once(shared, stream);
    int clusters = 0;
    if (const cudaError_t error = at_once.allow(); error != cudaSuccess) {
      return error;
    }
    if (const cudaError_t error =
            cudaOccupancyMaxActiveClusters(&clusters, continued_hidden<kTiles, 8>, &at_once.config);
        error != cudaSuccess) {
      return error;
    }
    if (own > 0 && own <= clusters) {
      return at_once.run(params, own);
    }
  }
  Launch<kTiles, 4> in_turn(shared, stream);
  if (const cudaError_t error = in_turn.allow(); error != cudaSuccess) {
    return error;
  }
  // Those that write B: half as many blocks as multiprocessors.
  const int writers = (multiprocessors / 2 + kContinuedSplits - 1) / kContinuedSplits;
  return in_turn.run(params, own + writers);
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
  switch (shared.lanes / 8) {
    case 2:
      return launch_as<2>(params, shared, multiprocessors, stream);
    case 4:
      return launch_as<4>(params, shared, multiprocessors, stream);
    case 6:
      return launch_as<6>(params, shared, multiprocessors, stream);
    case 8:
      return launch_as<8>(params, shared, multiprocessors, stream);
    case 12:
      return launch_as<12>(params, shared, multiprocessors, stream);
    case 16:
      return launch_as<16>(params, shared, multiprocessors, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace lora_bench::kernels
