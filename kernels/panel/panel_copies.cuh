#pragma once

#include <cstdint>

#include "kernels/paired/copies.cuh"

// Copies of 16 bytes in the background, to an address in shared memory.
namespace lora_bench::kernels {

__device__ inline std::uint32_t shared_address(const void* at) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
}

// The first `bytes` of 16; the others become zeros.
__device__ inline void bring_16(std::uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}

__device__ inline void bring_whole_16(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

}  // namespace lora_bench::kernels
