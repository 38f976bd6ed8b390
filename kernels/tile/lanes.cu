#include "kernels/tile/lanes.h"

#include <algorithm>

#include "kernels/dtype.cuh"

namespace lora_bench::kernels {
namespace {

constexpr int kThreads = 256;

// A thread owns one (slice, token, lane) at a time; lanes that no adapter has are left alone.
// Calls write(element, adapter).
template <typename Write>
__device__ void over_owned_lanes(const ShrinkParams& params, Write write) {
  const std::int64_t elements = params.slices * params.tokens * params.max_rank;
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t element = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
       element < elements; element += threads) {
    const std::int64_t lane = element % params.max_rank;
    const std::int64_t token = element / params.max_rank % params.tokens;
    const std::int64_t adapter = params.adapter_of_token[token];
    if (adapter >= 0 && lane < params.rank[adapter]) {
      write(element, adapter);
    }
  }
}

__global__ void zero_lanes(const __grid_constant__ ShrinkParams params) {
  over_owned_lanes(params, [&](std::int64_t element, std::int64_t) {
    static_cast<float*>(params.h)[element] = 0;
  });
}

template <typename H>
__global__ void combine(const __grid_constant__ ShrinkParams params, const float* parts,
                        const std::int64_t split) {
  const std::int64_t elements = params.slices * params.tokens * params.max_rank;
  over_owned_lanes(params, [&](std::int64_t element, std::int64_t adapter) {
    float sum = 0;
    for (std::int64_t part = 0; part < split; ++part) {
      sum += parts[part * elements + element];
    }
    const float scale = params.scale == nullptr ? 1.0F : params.scale[adapter];
    static_cast<H*>(params.h)[element] = from_float<H>(scale * sum);
  });
}

unsigned blocks_for(const ShrinkParams& params) {
  const std::int64_t elements = params.slices * params.tokens * params.max_rank;
  return static_cast<unsigned>(std::clamp<std::int64_t>(elements / kThreads + 1, 1, 4096));
}

}  // namespace

cudaError_t launch_zero_lanes(const ShrinkParams& params, cudaStream_t stream) {
  zero_lanes<<<blocks_for(params), kThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

cudaError_t launch_combine(Number number, const ShrinkParams& params, const ShrinkStore& store,
                           std::int64_t split, cudaStream_t stream) {
  const unsigned blocks = blocks_for(params);
  if (store.wide) {
    combine<float><<<blocks, kThreads, 0, stream>>>(params, store.parts, split);
  } else if (number == Number::kBf16) {
    combine<__nv_bfloat16><<<blocks, kThreads, 0, stream>>>(params, store.parts, split);
  } else {
    combine<__half><<<blocks, kThreads, 0, stream>>>(params, store.parts, split);
  }
  return cudaGetLastError();
}

}  // namespace lora_bench::kernels
