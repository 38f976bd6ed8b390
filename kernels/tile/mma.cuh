#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/dtype.cuh"

// The instructions that tiles are made of (sm_80 and up): matrix fragments, and the 16 x 8 x 16
// product with fp32 sums. A thread with lane number l owns of a 16 x 8 sum the columns 2 (l % 4)
// and the one after it, in rows l / 4 (first two) and l / 4 + 8.
namespace lora_bench::kernels {

// Four 8 x 8 matrices of 16-bit numbers; lane l gives the address of row l % 8 of matrix l / 8.
__device__ inline void load_matrices(std::uint32_t (&to)[4], const void* row) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

__device__ inline void multiply_add(__nv_bfloat16, float (&sums)[4], const std::uint32_t (&left)[4],
                                    const std::uint32_t* right) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};\n"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
}

__device__ inline void multiply_add(__half, float (&sums)[4], const std::uint32_t (&left)[4],
                                    const std::uint32_t* right) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};\n"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
}

__device__ inline std::uint32_t pack(__nv_bfloat16 low, __nv_bfloat16 high) {
  return static_cast<std::uint32_t>(__bfloat16_as_ushort(low)) |
         static_cast<std::uint32_t>(__bfloat16_as_ushort(high)) << 16;
}

// What `value` is short of fp32 after it was taken to bf16; the bf16 part goes to `part`.
__device__ inline float take_bf16(float value, __nv_bfloat16& part) {
  part = __float2bfloat16_rn(value);
  return value - __bfloat162float(part);
}

// Two fp32 numbers as `kTerms` pairs of bf16 whose sum is the numbers: three hold all 24 bits of
// an fp32, two all 11 of an fp16.
template <int kTerms>
__device__ inline void split_pair(float first, float second, std::uint32_t (&terms)[kTerms]) {
#pragma unroll
  for (int term = 0; term < kTerms; ++term) {
    __nv_bfloat16 low;
    __nv_bfloat16 high;
    first = take_bf16(first, low);
    second = take_bf16(second, high);
    terms[term] = pack(low, high);
  }
}

}  // namespace lora_bench::kernels
