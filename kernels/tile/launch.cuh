#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/tile/product.cuh"

namespace lora_bench::kernels {

// Launches with more dynamic shared memory than a kernel may use unasked.
template <typename... Parameters, typename... Arguments>
cudaError_t launch_with_shared(void (*kernel)(Parameters...), dim3 grid, int threads, int bytes,
                               cudaStream_t stream, const Arguments&... arguments) {
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) {
    return error;
  }
  kernel<<<grid, static_cast<unsigned>(threads), static_cast<std::size_t>(bytes), stream>>>(
      arguments...);
  return cudaGetLastError();
}

// The shapes of tiles that are compiled. Shrink: all warps of 16 rows share K; expand: they share
// columns. `Scalar` takes what cannot be read in vectors.
using ShrinkFewFew = TileShape<1, 1, 4, 16, 128, 4>;  // at most 16 rows, rank <= 16
using ShrinkFewWide = TileShape<1, 1, 4, 64, 128, 4>;
using ShrinkManyFew = TileShape<4, 1, 2, 16, 128, 4>;
using ShrinkManyWide = TileShape<4, 1, 2, 64, 128, 3>;
using ShrinkScalar = TileShape<1, 1, 4, 16, 128, 2>;
using ExpandFewFew = TileShape<1, 4, 1, 128, 16, 2>;
using ExpandFewWide = TileShape<1, 4, 1, 128, 64, 3>;
using ExpandManyFew = TileShape<4, 2, 1, 128, 16, 2>;
using ExpandManyWide = TileShape<4, 2, 1, 128, 64, 3>;
using ExpandScalar = TileShape<1, 4, 1, 128, 64, 2>;

// Calls `launch` with the shape and whether it reads vectors.
template <typename Launch>
cudaError_t visit_shrink_shape(int rows_per_tile, int columns_per_tile, bool vectors,
                               Launch launch) {
  if (!vectors) {
    return launch.template operator()<ShrinkScalar, false>();
  }
  if (rows_per_tile == 16) {
    return columns_per_tile == 16 ? launch.template operator()<ShrinkFewFew, true>()
                                  : launch.template operator()<ShrinkFewWide, true>();
  }
  return columns_per_tile == 16 ? launch.template operator()<ShrinkManyFew, true>()
                                : launch.template operator()<ShrinkManyWide, true>();
}

template <typename Launch>
cudaError_t visit_expand_shape(int rows_per_tile, int depth, bool vectors, Launch launch) {
  if (!vectors) {
    return launch.template operator()<ExpandScalar, false>();
  }
  if (rows_per_tile == 16) {
    return depth == 16 ? launch.template operator()<ExpandFewFew, true>()
                       : launch.template operator()<ExpandFewWide, true>();
  }
  return depth == 16 ? launch.template operator()<ExpandManyFew, true>()
                     : launch.template operator()<ExpandManyWide, true>();
}

}  // namespace lora_bench::kernels
