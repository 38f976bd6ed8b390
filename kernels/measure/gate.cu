#include "kernels/link.cuh"
#include "kernels/measure/probes.h"

namespace lora_bench::kernels {
namespace {

__device__ std::uint64_t now_ns() {
  std::uint64_t ns = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
  return ns;
}

__global__ void gate(const volatile unsigned* open, volatile unsigned* timed_out,
                     std::uint64_t timeout_ns) {
  const std::uint64_t start = now_ns();
  while (*open == 0) {
    if (now_ns() - start > timeout_ns) {
      *timed_out = 1;
      return;
    }
  }
}

__global__ void separator(int clocks) {
  const long long start = clock64();
  while (clock64() - start < clocks) {
  }
}

__global__ void copy_late(LateCopies copies, int clocks) {
  let_next_kernel_start();
  const long long start = clock64();
  while (clock64() - start < clocks) {
  }
  const std::int64_t first = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (int copy = 0; copy < copies.count; ++copy) {
    const auto* from = static_cast<const std::uint8_t*>(copies.from[copy]);
    auto* to = static_cast<std::uint8_t*>(copies.to[copy]);
    for (std::int64_t i = first; i < copies.bytes[copy];
         i += std::int64_t{gridDim.x} * blockDim.x) {
      to[i] = from[i];
    }
  }
}

// Each block marks the place of its multiprocessor.
__global__ void mark_clocks(std::int64_t* clocks, std::int64_t* ns, unsigned places) {
  unsigned multiprocessor = 0;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
  if (multiprocessor < places) {
    clocks[multiprocessor] = clock64();
    ns[multiprocessor] = static_cast<std::int64_t>(now_ns());
  }
}

}  // namespace

cudaError_t launch_mark_clocks(std::int64_t* clocks, std::int64_t* ns, unsigned multiprocessors,
                               cudaStream_t stream) {
  mark_clocks<<<multiprocessors, 1, 0, stream>>>(clocks, ns, multiprocessors);
  return cudaGetLastError();
}

// So few blocks that those of a kernel which starts early find room beside them.
cudaError_t launch_copy_late(const LateCopies& copies, int clocks, cudaStream_t stream) {
  constexpr unsigned kBlocks = 16;
  copy_late<<<kBlocks, 256, 0, stream>>>(copies, clocks);
  return cudaGetLastError();
}

cudaError_t launch_separator(int clocks, ProbeGrid grid, cudaStream_t stream) {
  separator<<<grid.blocks, grid.threads_per_block, 0, stream>>>(clocks);
  return cudaGetLastError();
}

cudaError_t launch_gate(const volatile unsigned* open, volatile unsigned* timed_out,
                        std::uint64_t timeout_ns, cudaStream_t stream) {
  gate<<<1, 1, 0, stream>>>(open, timed_out, timeout_ns);
  return cudaGetLastError();
}

}  // namespace lora_bench::kernels
