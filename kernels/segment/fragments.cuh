#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/segment/vectors.cuh"

// Tensor-core steps on fragments that come straight from rows in memory. A sum does not mind which
// element is called k = 0: thread t of a quad reads neighbouring elements of a row in one vector
// and passes them as those k that the instruction expects of it, in both operands alike, so no
// shared memory is needed to rearrange them. Rows are A's fragment, columns (rows of the weights)
// B's; accumulator element c of a thread is row g + 8 * (c / 2), column 2 * t + c % 2, where
// g = lane / 4, t = lane % 4.
namespace lora_bench::kernels {

template <typename T>
__device__ inline void multiply_16(float (&sum)[4], std::uint32_t a0, std::uint32_t a1,
                                   std::uint32_t a2, std::uint32_t a3, std::uint32_t b0,
                                   std::uint32_t b1) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  __trap();  // supports() said no
#else
  if constexpr (std::is_same_v<T, __half>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
#endif
}

__device__ inline void multiply_tf32(float (&sum)[4], std::uint32_t a0, std::uint32_t a1,
                                     std::uint32_t a2, std::uint32_t a3, std::uint32_t b0,
                                     std::uint32_t b1) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  __trap();
#else
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#endif
}

// An fp32 number as the sum of three that keep only the bits of kMask: without loss, as each takes
// at least eight of its 24. What is not finite stays in the first.
template <std::uint32_t kMask>
__device__ inline void split_in_three(float value, std::uint32_t (&parts)[3]) {
  parts[0] = __float_as_uint(value) & kMask;
  const float first = __uint_as_float(parts[0]);
  const float rest = first == value ? 0.0F : value - first;
  parts[1] = __float_as_uint(rest) & kMask;
  const float second = __uint_as_float(parts[1]);
  parts[2] = __float_as_uint(second == rest ? 0.0F : rest - second);
}

// Two rows (g and g + 8) of h, four lanes each, ready to be multiplied with rows of B. T is the
// storage of B, H that of h.
template <typename T, typename H>
struct HiddenFragment {
  static_assert(std::is_same_v<T, H>);
  uint2 row[2];

  __device__ void load(const uint2& first, const uint2& second) {
    row[0] = first;
    row[1] = second;
  }
  __device__ void multiply(float (&sum)[4], const uint2& b) const {
    multiply_16<T>(sum, row[0].x, row[1].x, row[0].y, row[1].y, b.x, b.y);
  }
};

// bf16 has the exponents of fp32: an fp32 h is three bf16 numbers.
template <>
struct HiddenFragment<__nv_bfloat16, float> {
  uint2 part[3][2];

  __device__ void load(const float4& first, const float4& second) {
    const float4 rows[2] = {first, second};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      std::uint32_t x[3], y[3], z[3], w[3];
      split_in_three<0xFFFF0000U>(rows[i].x, x);
      split_in_three<0xFFFF0000U>(rows[i].y, y);
      split_in_three<0xFFFF0000U>(rows[i].z, z);
      split_in_three<0xFFFF0000U>(rows[i].w, w);
#pragma unroll
      for (int p = 0; p < 3; ++p) {
        // The upper halves of both, the first below.
        part[p][i] = {__byte_perm(x[p], y[p], 0x7632), __byte_perm(z[p], w[p], 0x7632)};
      }
    }
  }
  __device__ void multiply(float (&sum)[4], const uint2& b) const {
#pragma unroll
    for (int p = 2; p >= 0; --p) {
      multiply_16<__nv_bfloat16>(sum, part[p][0].x, part[p][1].x, part[p][0].y, part[p][1].y, b.x,
                                 b.y);
    }
  }
};

// fp16 has not; tf32 has, and holds every fp16 number: three tf32 numbers.
template <>
struct HiddenFragment<__half, float> {
  std::uint32_t part[3][2][4];

  __device__ void load(const float4& first, const float4& second) {
    const float rows[2][4] = {{first.x, first.y, first.z, first.w},
                              {second.x, second.y, second.z, second.w}};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        std::uint32_t parts[3];
        split_in_three<0xFFFFE000U>(rows[i][j], parts);
#pragma unroll
        for (int p = 0; p < 3; ++p) {
          part[p][i][j] = parts[p];
        }
      }
    }
  }
  __device__ void multiply(float (&sum)[4], const uint2& b) const {
    const float2 low = floats_of<__half>(b.x);
    const float2 high = floats_of<__half>(b.y);
#pragma unroll
    for (int p = 2; p >= 0; --p) {
      multiply_tf32(sum, part[p][0][0], part[p][1][0], part[p][0][1], part[p][1][1],
                    __float_as_uint(low.x), __float_as_uint(low.y));
      multiply_tf32(sum, part[p][0][2], part[p][1][2], part[p][0][3], part[p][1][3],
                    __float_as_uint(high.x), __float_as_uint(high.y));
    }
  }
};

}  // namespace lora_bench::kernels
