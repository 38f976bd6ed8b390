#pragma once

#include "kernels/bgmv/sgmv.cuh"

namespace lora_bench::kernels {

// Blocks and threads of a one-dimensional grid.
template <typename... Params, typename... Arguments>
cudaError_t launch(void (*kernel)(Params...), std::int64_t blocks, int threads, cudaStream_t stream,
                   const Arguments&... arguments) {
  if (blocks == 0) {
    return cudaSuccess;
  }
  if (blocks > 2147483647) {
    return cudaErrorInvalidConfiguration;
  }
  kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), 0, stream>>>(
      arguments...);
  return cudaGetLastError();
}

template <typename T, typename H>
cudaError_t launch_bgmv_shrink_as(const ShrinkParams& params, const BgmvShrinkTuning& tuning,
                                  bool vectors, cudaStream_t stream) {
  if (tuning.form == BgmvForm::kRows) {
    const bool single = tuning.lanes_per_block == 1;
    const auto kernel = vectors ? (single ? bgmv_shrink<T, H, 8, 1> : bgmv_shrink<T, H, 8, 4>)
                                : (single ? bgmv_shrink<T, H, 1, 1> : bgmv_shrink<T, H, 1, 4>);
    return launch(kernel, tuning.blocks, kBgmvThreads, stream, params);
  }
  const auto small = vectors ? sgmv_shrink<T, H, true, 1, 2> : sgmv_shrink<T, H, false, 1, 2>;
  const auto high = vectors ? sgmv_shrink<T, H, true, 2, 2> : sgmv_shrink<T, H, false, 2, 2>;
  const auto wide = vectors ? sgmv_shrink<T, H, true, 1, 8> : sgmv_shrink<T, H, false, 1, 8>;
  const auto large = vectors ? sgmv_shrink<T, H, true, 2, 8> : sgmv_shrink<T, H, false, 2, 8>;
  const auto kernel = tuning.row_fragments == 1 ? (tuning.lane_fragments == 2 ? small : wide)
                                                : (tuning.lane_fragments == 2 ? high : large);
  return launch(kernel, tuning.blocks, kSgmvShrinkThreads, stream, params, tuning.lane_tiles);
}

template <typename T, typename H>
cudaError_t launch_bgmv_expand_as(const ExpandParams& params, const BgmvExpandTuning& tuning,
                                  bool vectors, cudaStream_t stream) {
  if (tuning.form == BgmvForm::kRows) {
    const auto kernel = vectors ? bgmv_expand<T, H, 8> : bgmv_expand<T, H, 1>;
    return launch(kernel, tuning.blocks, kBgmvThreads, stream, params, tuning.columns_per_tile,
                  tuning.column_tiles);
  }
  const auto kernel = vectors ? sgmv_expand<T, H, true> : sgmv_expand<T, H, false>;
  return launch(kernel, tuning.blocks, kSgmvExpandThreads, stream, params, tuning.column_tiles);
}

}  // namespace lora_bench::kernels
