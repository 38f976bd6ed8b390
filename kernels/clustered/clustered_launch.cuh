#pragma once

#include "kernels/clustered/cluster_launch.cuh"
#include "kernels/clustered/clustered.cuh"

// Every shape that is compiled.
namespace lora_bench::kernels {

template <typename T, typename H>
cudaError_t launch_clustered_as(const ShrinkParams& shrink, const ExpandParams& expand,
                                const ClusteredTuning& tuning, const ClusteredPlan& plan,
                                cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(tuning.cluster), static_cast<unsigned>(tuning.tiles),
                  static_cast<unsigned>(tuning.any_batch ? 1 : tuning.groups));
  const auto launch = [&]<int kTiles, bool kAnyBatch>() {
    return launch_clusters(has_bias(expand) ? clustered<T, H, true, kTiles, kAnyBatch>
                                            : clustered<T, H, false, kTiles, kAnyBatch>,
                           grid, tuning.warps, tuning.shared_bytes, shrink, expand, plan, stream);
  };
  if (tuning.any_batch) {
    return launch.template operator()<8, true>();
  }
  return tuning.owned == 0 ? launch.template operator()<8, false>()
                           : launch.template operator()<4, false>();
}

}  // namespace lora_bench::kernels
