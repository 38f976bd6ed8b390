#include "kernels/paired/paired_launch.cuh"

namespace lora_bench::kernels {

template cudaError_t launch_paired_shrink_as<__half>(const ShrinkParams&, const PairedShrinkTuning&,
                                                     const PairedShrinkPlan&, bool, cudaStream_t);
template cudaError_t launch_paired_expand_as<__half, float>(const ExpandParams&,
                                                            const PairedExpandTuning&,
                                                            const PairedExpandPlan&,
                                                            const PairedExpandAccess&,
                                                            cudaStream_t);
template cudaError_t launch_paired_expand_as<__half, __half>(const ExpandParams&,
                                                             const PairedExpandTuning&,
                                                             const PairedExpandPlan&,
                                                             const PairedExpandAccess&,
                                                             cudaStream_t);

}  // namespace lora_bench::kernels
