#pragma once

#include "kernels/dtype.cuh"
#include "kernels/streamed/streamed.h"
#include "kernels/tile/mma.cuh"

// What W and A are multiplied by alike.
namespace lora_bench::kernels {

// Of this lane, eight columns of a group of 32 of row lane / 4 of x.
template <typename T>
struct StreamedRows {
  const T* x;
  int depth;

  __device__ StreamedRows(const StreamedParams& params, int lane)
      : x(lane / 4 < params.tokens
              ? static_cast<const T*>(params.x) + lane / 4 * params.x_stride + lane % 4 * 8
              : nullptr),
        depth(static_cast<int>(params.depth)) {}
  // Zeros beyond the tokens and K.
  __device__ uint4 load(int column) const {
    return x != nullptr && column < depth ? *reinterpret_cast<const uint4*>(x + column) : uint4{};
  }
};

// 16 rows of W or A by the rows of x, over 32 columns: a lane has eight columns of rows lane / 4
// and lane / 4 + 8, and of a sum those rows of tokens lane % 4 * 2 and the one after it.
template <typename T>
__device__ inline void multiply_group(float (&sum)[4], const uint4& low, const uint4& high,
                                      const uint4& of_x) {
  const std::uint32_t even[4] = {low.x, high.x, low.y, high.y};
  const std::uint32_t odd[4] = {low.z, high.z, low.w, high.w};
  const std::uint32_t first[2] = {of_x.x, of_x.y};
  const std::uint32_t second[2] = {of_x.z, of_x.w};
  multiply_add(T{}, sum, even, first);
  multiply_add(T{}, sum, odd, second);
}

}  // namespace lora_bench::kernels
