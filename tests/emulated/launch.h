#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>
#include <vector_types.h>

#include <chrono>
#include <functional>
#include <tuple>
#include <utility>

#include "emulated/machine.h"

// How kernels are launched.
namespace lora_bench::emulated {

// Now, or as a node of the graph that the stream records.
void enqueue(cudaStream_t stream, std::function<void()> work);

template <typename... Parameters>
void launch(cudaStream_t stream, Launch how, void (*kernel)(Parameters...),
            std::tuple<std::decay_t<Parameters>...> arguments) {
  enqueue(stream, [how = std::move(how), kernel, arguments = std::move(arguments)]() mutable {
    how.body = [&] { std::apply(kernel, arguments); };
    run(how);
  });
}

template <typename... Parameters>
auto start(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
           cudaStream_t stream) {
  return [=](const auto&... arguments) {
    launch(stream, {grid, block, 1, shared_bytes, {}}, kernel,
           std::tuple<std::decay_t<Parameters>...>(arguments...));
  };
}

inline std::uint32_t two_bf16(float high, float low) {
  const auto bits = [](float value) {
    return std::uint32_t{__bfloat16_as_ushort(__float2bfloat16_rn(value))};
  };
  return bits(high) << 16 | bits(low);
}
inline std::uint64_t nanoseconds() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                    std::chrono::nanoseconds(1));
}

}  // namespace lora_bench::emulated

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               const Arguments&... arguments) {
  unsigned cluster = 1;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    if (config->attrs[i].id == cudaLaunchAttributeClusterDimension) {
      cluster = config->attrs[i].val.clusterDim.x;
    }
  }
  lora_bench::emulated::launch(
      config->stream, {config->gridDim, config->blockDim, cluster, config->dynamicSmemBytes, {}},
      kernel, std::tuple<std::decay_t<Parameters>...>(arguments...));
  return cudaSuccess;
}
template <typename... Parameters>
cudaError_t cudaFuncSetAttribute(void (*)(Parameters...), cudaFuncAttribute, int) {
  return cudaSuccess;
}
template <typename... Parameters>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* of, void (*)(Parameters...)) {
  *of = {};
  of->ptxVersion = 90;
  of->binaryVersion = 90;
  of->maxDynamicSharedSizeBytes = 232448;
  return cudaSuccess;
}
