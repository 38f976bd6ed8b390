#include "kernels/clustered/resident_launch.cuh"

namespace lora_bench::kernels {

template cudaError_t launch_resident_eight_as<__half, float>(const ShrinkParams&,
                                                             const ExpandParams&,
                                                             const ResidentTuning&,
                                                             const ResidentEightPlan&,
                                                             cudaStream_t);
template cudaError_t launch_resident_eight_as<__half, __half>(const ShrinkParams&,
                                                              const ExpandParams&,
                                                              const ResidentTuning&,
                                                              const ResidentEightPlan&,
                                                              cudaStream_t);

}  // namespace lora_bench::kernels
