#pragma once

#include "kernels/clustered/cluster_launch.cuh"
#include "kernels/clustered/resident.cuh"

// Every shape that is compiled.
namespace lora_bench::kernels {

template <typename Plan>
cudaError_t launch_resident_kernel(void (*kernel)(ShrinkParams, ExpandParams, Plan),
                                   const ShrinkParams& shrink, const ExpandParams& expand,
                                   const ResidentTuning& tuning, const Plan& plan,
                                   cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(tuning.cluster), static_cast<unsigned>(tuning.tiles),
                  static_cast<unsigned>(tuning.groups));
  return launch_clusters(kernel, grid, tuning.warps, tuning.shared_bytes, shrink, expand, plan,
                         stream);
}

template <typename T, typename H>
cudaError_t launch_resident_as(const ShrinkParams& shrink, const ExpandParams& expand,
                               const ResidentTuning& tuning, const ResidentPlan& plan,
                               cudaStream_t stream) {
  auto* const kernel =
      tuning.eights == 1
          ? (has_bias(expand) ? resident<T, H, T, true, 1> : resident<T, H, T, false, 1>)
          : (has_bias(expand) ? resident<T, H, T, true, 2> : resident<T, H, T, false, 2>);
  return launch_resident_kernel(kernel, shrink, expand, tuning, plan, stream);
}

// One kernel with a bias or without, and for both formats.
template <typename T, typename H>
cudaError_t launch_resident_eight_as(const ShrinkParams& shrink, const ExpandParams& expand,
                                     const ResidentTuning& tuning, const ResidentEightPlan& plan,
                                     cudaStream_t stream) {
  auto* const kernel =
      tuning.eights == 1 ? resident<T, H, EightBits, true, 1> : resident<T, H, EightBits, true, 2>;
  return launch_resident_kernel(kernel, shrink, expand, tuning, plan, stream);
}

}  // namespace lora_bench::kernels
