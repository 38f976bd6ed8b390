#include "kernels/clustered/clustered_launch.cuh"

namespace lora_bench::kernels {

template cudaError_t launch_clustered_eight_as<__half, float>(const ShrinkParams&,
                                                              const ExpandParams&,
                                                              const ClusteredTuning&,
                                                              const EightBitsPlan&, cudaStream_t);
template cudaError_t launch_clustered_eight_as<__half, __half>(const ShrinkParams&,
                                                               const ExpandParams&,
                                                               const ClusteredTuning&,
                                                               const EightBitsPlan&, cudaStream_t);

}  // namespace lora_bench::kernels
