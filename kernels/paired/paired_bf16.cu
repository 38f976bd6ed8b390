#include "kernels/paired/paired_launch.cuh"

namespace lora_bench::kernels {

template cudaError_t launch_paired_shrink_as<__nv_bfloat16>(const ShrinkParams&,
                                                            const PairedShrinkTuning&,
                                                            const PairedShrinkPlan&, bool,
                                                            cudaStream_t);
template cudaError_t launch_paired_expand_as<__nv_bfloat16, float>(const ExpandParams&,
                                                                   const PairedExpandTuning&,
                                                                   const PairedExpandPlan&,
                                                                   const PairedExpandAccess&,
                                                                   cudaStream_t);
template cudaError_t launch_paired_expand_as<__nv_bfloat16, __nv_bfloat16>(
    const ExpandParams&, const PairedExpandTuning&, const PairedExpandPlan&,
    const PairedExpandAccess&, cudaStream_t);

}  // namespace lora_bench::kernels
