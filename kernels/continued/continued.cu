#include "kernels/continued/continued.cuh"

namespace lora_bench::kernels {
namespace {

bool begins(const void* at) { return reinterpret_cast<std::uintptr_t>(at) % 16 == 0; }

}  // namespace

bool continued_copies(const ContinuedParams& params) {
  bool all = begins(params.x) && begins(params.w);
  for (int slice = 0; slice < params.expand.slices; ++slice) {
    all = all && begins(params.expand.b[slice]);
  }
  return all;
}

cudaError_t launch_continued(const ContinuedParams& params, int multiprocessors,
                             cudaStream_t stream) {
  constexpr int kThreads = 256;
  constexpr int kBlocks = 4;  // on a multiprocessor
  cudaLaunchAttribute link = {};
  link.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  link.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(kBlocks * multiprocessors));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  config.attrs = &link;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, continued, params);
}

}  // namespace lora_bench::kernels
