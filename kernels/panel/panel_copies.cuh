#pragma once

#include <cstdint>

#include "kernels/asynchronous.cuh"

// Copies of 16 bytes in the background (cp.async) in groups; a thread waits for its own.
namespace lora_bench::kernels {

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
