#pragma once

#include "kernels/clustered/cluster_launch.cuh"
#include "kernels/clustered/clustered.cuh"

// Every shape that is compiled.
namespace lora_bench::kernels {

template <typename Launch>
cudaError_t launch_clustered_shape(const ClusteredTuning& tuning, const Launch& launch) {
  const dim3 grid(static_cast<unsigned>(tuning.cluster), static_cast<unsigned>(tuning.tiles),
                  static_cast<unsigned>(tuning.any_batch ? 1 : tuning.groups));
  if (tuning.any_batch) {
    return launch.template operator()<8, true>(grid);
  }
  return tuning.owned == 0 ? launch.template operator()<8, false>(grid)
                           : launch.template operator()<4, false>(grid);
}

template <typename T, typename H>
cudaError_t launch_clustered_as(const ShrinkParams& shrink, const ExpandParams& expand,
                                const ClusteredTuning& tuning, const ClusteredPlan& plan,
                                cudaStream_t stream) {
  return launch_clustered_shape(tuning, [&]<int kTiles, bool kAnyBatch>(dim3 grid) {
    return launch_clusters(has_bias(expand) ? clustered<T, H, T, true, kTiles, kAnyBatch>
                                            : clustered<T, H, T, false, kTiles, kAnyBatch>,
                           grid, tuning.warps, tuning.shared_bytes, shrink, expand, plan, stream);
  });
}

// One kernel with a bias or without, and for both formats.
template <typename T, typename H>
cudaError_t launch_clustered_eight_as(const ShrinkParams& shrink, const ExpandParams& expand,
                                      const ClusteredTuning& tuning, const EightBitsPlan& plan,
                                      cudaStream_t stream) {
  return launch_clustered_shape(tuning, [&]<int kTiles, bool kAnyBatch>(dim3 grid) {
    return launch_clusters(clustered<T, H, EightBits, true, kTiles, kAnyBatch>, grid, tuning.warps,
                           tuning.shared_bytes, shrink, expand, plan, stream);
  });
}

}  // namespace lora_bench::kernels
