#pragma once

#include "kernels/clustered/cluster_launch.cuh"
#include "kernels/clustered/resident.cuh"

// Every shape that is compiled.
namespace lora_bench::kernels {

template <typename T, typename H>
cudaError_t launch_resident_as(const ShrinkParams& shrink, const ExpandParams& expand,
                               const ResidentTuning& tuning, const ResidentPlan& plan,
                               cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(tuning.cluster), static_cast<unsigned>(tuning.tiles),
                  static_cast<unsigned>(tuning.groups));
  const auto launch = [&](auto kernel) {
    return launch_clusters(kernel, grid, tuning.warps, tuning.shared_bytes, shrink, expand, plan,
                           stream);
  };
  if (tuning.eights == 1) {
    return launch(has_bias(expand) ? resident<T, H, true, 1> : resident<T, H, false, 1>);
  }
  return launch(has_bias(expand) ? resident<T, H, true, 2> : resident<T, H, false, 2>);
}

}  // namespace lora_bench::kernels
