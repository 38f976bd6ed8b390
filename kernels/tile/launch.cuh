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
// columns, and few rows take as many columns as make 16 KB of B at the rank. `Deep` has 48 KB of a
// few lanes under way, for grids that are too small to fill the machine; `Scalar` takes what cannot
// be read in vectors.
using ShrinkFewFew = TileShape<1, 1, 4, 16, 128, 4>;  // at most 16 rows, 16 lanes
using ShrinkFewWide = TileShape<1, 1, 4, 64, 128, 4>;
using ShrinkManyFew = TileShape<4, 1, 2, 16, 128, 4>;
using ShrinkManyWide = TileShape<4, 1, 2, 64, 128, 3>;
using ShrinkDeep = TileShape<1, 1, 8, 16, 512, 4>;
using ShrinkScalar = TileShape<1, 1, 4, 16, 128, 2>;
using ExpandFew16 = TileShape<1, 8, 1, 512, 16, 2>;  // rank at most 16
using ExpandFew32 = TileShape<1, 4, 1, 256, 32, 2>;
using ExpandFew64 = TileShape<1, 4, 1, 128, 64, 3>;
using ExpandMany16 = TileShape<4, 2, 1, 128, 16, 2>;
using ExpandMany64 = TileShape<4, 2, 1, 128, 64, 3>;
using ExpandScalar = TileShape<1, 4, 1, 128, 64, 2>;

// Calls `launch` with the shape and whether it reads vectors.
template <typename Launch>
cudaError_t visit_shrink_shape(int rows_per_tile, int columns_per_tile, int depth, bool vectors,
                               Launch launch) {
  if (!vectors) {
    return launch.template operator()<ShrinkScalar, false>();
  }
  if (depth == 512) {
    return launch.template operator()<ShrinkDeep, true>();
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
    switch (depth) {
      case 16:
        return launch.template operator()<ExpandFew16, true>();
      case 32:
        return launch.template operator()<ExpandFew32, true>();
      default:
        return launch.template operator()<ExpandFew64, true>();
    }
  }
  return depth == 16 ? launch.template operator()<ExpandMany16, true>()
                     : launch.template operator()<ExpandMany64, true>();
}

}  // namespace lora_bench::kernels
