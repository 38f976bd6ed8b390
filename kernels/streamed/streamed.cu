#include "kernels/divide_up.h"
#include "kernels/streamed/streamed.cuh"

namespace lora_bench::kernels {
namespace {

template <typename T, bool kAdapters>
cudaError_t launch_as(const StreamedParams& params, const StreamedAdapters& adapters,
                      int multiprocessors, cudaStream_t stream) {
  const auto kernel = streamed<T, kAdapters>;
  constexpr int kThreads = 32 * (kBaseWarps + (kAdapters ? kHiddenWarps : 0));
  constexpr int kMostBytes = kHiddenAt + static_cast<int>(kStreamedHidden) * 4;
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostBytes);
      error != cudaSuccess) {
    return error;
  }
  const std::int64_t units = params.columns / kStreamedRows;
  const std::int64_t blocks = units < multiprocessors ? units : multiprocessors;
  const std::int64_t hidden = adapters.shrink.slices * params.tokens * adapters.shrink.max_rank;
  cudaLaunchAttribute link = {};
  link.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  link.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = static_cast<std::size_t>(kHiddenAt + (kAdapters ? hidden * 4 : 0));
  config.stream = stream;
  config.attrs = &link;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(
      &config, kernel, params, adapters,
      streamed_units_together(params.tokens, divide_up(units, blocks), kAdapters));
}

template <typename T>
cudaError_t launch_of(const StreamedParams& params, const StreamedAdapters* adapters,
                      int multiprocessors, cudaStream_t stream) {
  return adapters == nullptr
             ? launch_as<T, false>(params, StreamedAdapters{}, multiprocessors, stream)
             : launch_as<T, true>(params, *adapters, multiprocessors, stream);
}

bool begins(const void* at) { return reinterpret_cast<std::uintptr_t>(at) % 16 == 0; }

}  // namespace

bool streamed_copies(const StreamedParams& params) { return begins(params.x) && begins(params.w); }

bool streamed_copies(const StreamedAdapters& adapters) {
  bool all = true;
  for (int slice = 0; slice < adapters.shrink.slices; ++slice) {
    all = all && begins(adapters.shrink.a[slice]) && begins(adapters.expand.b[slice]);
  }
  return all;
}

cudaError_t launch_streamed(Number number, const StreamedParams& params,
                            const StreamedAdapters* adapters, int multiprocessors,
                            cudaStream_t stream) {
  switch (number) {
    case Number::kBf16:
      return launch_of<__nv_bfloat16>(params, adapters, multiprocessors, stream);
    case Number::kFp16:
      return launch_of<__half>(params, adapters, multiprocessors, stream);
    case Number::kFp32:
      break;
  }
  return cudaErrorInvalidValue;
}

}  // namespace lora_bench::kernels
