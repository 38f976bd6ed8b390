#include "kernels/dtype.cuh"
#include "kernels/exchange/exchange.h"

namespace lora_bench::kernels {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 4096;

__device__ std::int64_t first_element() {
  return std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ std::int64_t all_threads() { return std::int64_t{gridDim.x} * blockDim.x; }

// A thread adds one element of all parts and stores it everywhere: nobody else reads or writes that
// place, so a target may be a part. Bound: memory.
template <typename T>
__global__ void sum_parts(const __grid_constant__ ExchangeParams params) {
  const std::int64_t elements = params.rows * params.columns;
  for (std::int64_t at = first_element(); at < elements; at += all_threads()) {
    float sum = to_float(static_cast<const T*>(params.part[0])[at]);
    for (int part = 1; part < params.parts; ++part) {
      sum += to_float(static_cast<const T*>(params.part[part])[at]);
    }
    for (int target = 0; target < params.targets; ++target) {
      static_cast<T*>(params.to[target])[at] = from_float<T>(sum);
    }
  }
}

// A thread copies one element to all targets. Bound: memory.
template <typename T>
__global__ void gather_parts(const __grid_constant__ ExchangeParams params) {
  const std::int64_t width = params.parts * params.columns;
  for (std::int64_t at = first_element(); at < params.rows * width; at += all_threads()) {
    const std::int64_t row = at / width;
    const std::int64_t column = at % width;
    const T value = static_cast<const T*>(
        params.part[column / params.columns])[row * params.columns + column % params.columns];
    for (int target = 0; target < params.targets; ++target) {
      static_cast<T*>(params.to[target])[at] = value;
    }
  }
}

unsigned blocks_for(std::int64_t elements) {
  const std::int64_t blocks = (elements + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks);
}

template <typename Launch>
cudaError_t dispatch(Number number, Launch launch) {
  switch (number) {
    case Number::kFp32:
      launch(float{});
      break;
    case Number::kBf16:
      launch(__nv_bfloat16{});
      break;
    case Number::kFp16:
      launch(__half{});
      break;
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_sum_parts(Number number, const ExchangeParams& params, cudaStream_t stream) {
  const std::int64_t elements = params.rows * params.columns;
  if (elements == 0 || params.parts == 0) {
    return cudaSuccess;
  }
  return dispatch(number, [&](auto element) {
    sum_parts<decltype(element)><<<blocks_for(elements), kThreads, 0, stream>>>(params);
  });
}

cudaError_t launch_gather_parts(Number number, const ExchangeParams& params, cudaStream_t stream) {
  const std::int64_t elements = params.rows * params.columns * params.parts;
  if (elements == 0) {
    return cudaSuccess;
  }
  return dispatch(number, [&](auto element) {
    gather_parts<decltype(element)><<<blocks_for(elements), kThreads, 0, stream>>>(params);
  });
}

}  // namespace lora_bench::kernels
