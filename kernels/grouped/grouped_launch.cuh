#pragma once

#include "kernels/grouped/grouped.cuh"
#include "kernels/tile/launch.cuh"

namespace lora_bench::kernels {

template <typename T>
cudaError_t launch_grouped_shrink_as(const ShrinkParams& params, const ShrinkStore& store,
                                     const GroupedTuning& tuning, bool vectors,
                                     cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(tuning.split * tuning.row_tiles * tuning.column_tiles),
                  static_cast<unsigned>(params.slices), static_cast<unsigned>(params.active));
  return visit_shrink_shape(tuning.rows_per_tile, tuning.columns_per_tile, tuning.depth, vectors,
                            [&]<typename Shape, bool kVector>() {
                              return launch_with_shared(
                                  &grouped_shrink<Shape, kVector, T>, grid, Shape::kThreads,
                                  shared_bytes<Shape, T, T>(), stream, params, store, tuning);
                            });
}

template <typename T, typename H>
cudaError_t launch_grouped_expand_as(const ExpandParams& params, const GroupedTuning& tuning,
                                     bool vectors, bool vector_y, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(tuning.row_tiles * tuning.column_tiles),
                  static_cast<unsigned>(params.slices), static_cast<unsigned>(params.active));
  return visit_expand_shape(
      tuning.rows_per_tile, tuning.depth, vectors, [&]<typename Shape, bool kVector>() {
        return launch_with_shared(&grouped_expand<Shape, kVector, T, H>, grid, Shape::kThreads,
                                  shared_bytes<Shape, T, H>(), stream, params, tuning, vector_y);
      });
}

}  // namespace lora_bench::kernels
