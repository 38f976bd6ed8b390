#pragma once

#include <cstdint>

// Copies of 16 bytes in the background (cp.async), to an address in shared memory, in groups; a
// thread waits for its own.
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

__device__ inline void close_brought() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Until at most `kOpen` of the closed groups are still under way.
template <int kOpen>
__device__ inline void await_brought() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kOpen) : "memory");
}

}  // namespace lora_bench::kernels
