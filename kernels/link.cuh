#pragma once

// Programmatic dependent launch (sm_90 and up; elsewhere a kernel starts after the one before it).
namespace lora_bench::kernels {

// All that kernels before this one have written may be read from here on.
__device__ inline void await_previous_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Once every block has come here or ended, the next kernel may start.
__device__ inline void let_next_kernel_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace lora_bench::kernels
