#pragma once

#include "kernels/chunked/chunked.cuh"
#include "kernels/tile/launch.cuh"

namespace lora_bench::kernels {

template <typename T>
cudaError_t launch_chunked_shrink_as(const ShrinkParams& params, bool wide,
                                     const ChunkedTuning& tuning, bool vectors,
                                     cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(tuning.segments),
                  static_cast<unsigned>(tuning.column_tiles));
  return visit_shrink_shape(tuning.chunk, tuning.columns_per_tile, tuning.depth, vectors,
                            [&]<typename Shape, bool kVector>() {
                              return launch_with_shared(&chunked_shrink<Shape, kVector, T>, grid,
                                                        Shape::kThreads,
                                                        shared_bytes<Shape, T, T>(), stream, params,
                                                        wide, tuning.tiles_of_segment);
                            });
}

template <typename T, typename H>
cudaError_t launch_chunked_expand_as(const ExpandParams& params, const ChunkedTuning& tuning,
                                     bool vectors, bool vector_y, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(tuning.segments),
                  static_cast<unsigned>(tuning.column_tiles));
  return visit_expand_shape(
      tuning.chunk, tuning.depth, vectors, [&]<typename Shape, bool kVector>() {
        return launch_with_shared(&chunked_expand<Shape, kVector, T, H>, grid, Shape::kThreads,
                                  shared_bytes<Shape, T, H>(), stream, params, vector_y,
                                  tuning.tiles_of_segment);
      });
}

}  // namespace lora_bench::kernels
