#include "kernels/clustered/resident_launch.cuh"

namespace lora_bench::kernels {

template cudaError_t launch_resident_eight_as<__nv_bfloat16, float>(const ShrinkParams&,
                                                                    const ExpandParams&,
                                                                    const ResidentTuning&,
                                                                    const ResidentEightPlan&,
                                                                    cudaStream_t);
template cudaError_t launch_resident_eight_as<__nv_bfloat16, __nv_bfloat16>(
    const ShrinkParams&, const ExpandParams&, const ResidentTuning&, const ResidentEightPlan&,
    cudaStream_t);

}  // namespace lora_bench::kernels
