#pragma once

#include <cuda_runtime_api.h>

#include "kernels/params.h"

namespace lora_bench::kernels {

// The rows of a batch beside each other, grouped by adapter, for libraries that multiply whole
// matrices: row i of a gathered matrix is token token_order[i]. Rows without an adapter and of rank
// 0 are neither read nor written. Any alignment of the dtype.

// Gathered matrices: rows 0 ... rows - 1 (those with an adapter), `stride` elements apart; of h one
// such matrix a slice, `rows` * `stride` elements apart.
struct Gathered {
  void* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t stride = 0;
};

// x, in the storage `number`.
[[nodiscard]] cudaError_t launch_gather_x(Number number, const ShrinkParams& params,
                                          const Gathered& to, cudaStream_t stream);
// h of all slices, lanes below the rank.
[[nodiscard]] cudaError_t launch_gather_h(Number intermediate, const ExpandParams& params,
                                          const Gathered& to, cudaStream_t stream);
// h = scale * sums of all slices, sums in fp32, stored as `intermediate`: at its tokens in params.h
// if `to` has no data, else gathered (in place if it is the sums' own).
[[nodiscard]] cudaError_t launch_finish_h(Number intermediate, const ShrinkParams& params,
                                          const Gathered& sums, const Gathered& to,
                                          cudaStream_t stream);
// `rows` rows of `count` numbers of 16 bits as fp32.
[[nodiscard]] cudaError_t launch_widen(Number number, const void* from, std::int64_t from_stride,
                                       float* to, std::int64_t to_stride, std::int64_t rows,
                                       std::int64_t count, cudaStream_t stream);
// y (+)= scale * delta (+ bias), delta gathered in fp32, its columns those of all slices.
[[nodiscard]] cudaError_t launch_scatter_y(Number number, const ExpandParams& params,
                                           const Gathered& delta, cudaStream_t stream);

}  // namespace lora_bench::kernels
