#pragma once

#include <cstdint>

// Fragments of a product from rows in shared memory, K in its natural order.
namespace lora_bench::kernels {

// Four matrices of 8 rows of 16 bytes: thread i says where row i % 8 of matrix i / 8 begins, and
// has elements 2 * (lane % 4) and the one after it of row lane / 4 of each.
__device__ inline uint4 load_matrices(std::uint32_t row) {
  uint4 of = {};
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 750
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(of.x), "=r"(of.y), "=r"(of.z), "=r"(of.w)
               : "r"(row)
               : "memory");
#endif
  return of;
}

}  // namespace lora_bench::kernels
