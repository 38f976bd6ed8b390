#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/params.h"

// For kernels in which a thread takes one element and then strides over the rest.
namespace lora_bench::kernels {

constexpr int kElementThreads = 256;

__device__ inline std::int64_t first_element() {
  return std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ inline std::int64_t all_threads() { return std::int64_t{gridDim.x} * blockDim.x; }

// A few waves are enough; the threads stride over what is left.
inline unsigned blocks_for(std::int64_t elements) {
  constexpr std::int64_t kMostBlocks = 4096;
  const std::int64_t blocks = (elements + kElementThreads - 1) / kElementThreads;
  return static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks);
}

// Calls `launch` with an element of the number and the grid, where there is anything to do.
template <typename Launch>
cudaError_t for_elements(Number number, std::int64_t elements, Launch launch) {
  if (elements == 0) {
    return cudaSuccess;
  }
  switch (number) {
    case Number::kFp32:
      launch(float{}, blocks_for(elements));
      break;
    case Number::kBf16:
      launch(__nv_bfloat16{}, blocks_for(elements));
      break;
    case Number::kFp16:
      launch(__half{}, blocks_for(elements));
      break;
  }
  return cudaGetLastError();
}

}  // namespace lora_bench::kernels
