#pragma once

// Groups of copies in the background (cp.async); a thread waits for its own.
namespace lora_bench::kernels {

__device__ inline void close_brought() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Until at most `kOpen` of the closed groups are still under way.
template <int kOpen>
__device__ inline void await_brought() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kOpen) : "memory");
}

}  // namespace lora_bench::kernels
