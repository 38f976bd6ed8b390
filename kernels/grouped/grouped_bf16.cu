#include "kernels/grouped/grouped_launch.cuh"

namespace lora_bench::kernels {

template cudaError_t launch_grouped_shrink_as<__nv_bfloat16>(const ShrinkParams&,
                                                             const ShrinkStore&,
                                                             const GroupedTuning&, bool,
                                                             cudaStream_t);
template cudaError_t launch_grouped_expand_as<__nv_bfloat16, float>(const ExpandParams&,
                                                                    const GroupedTuning&, bool,
                                                                    bool, cudaStream_t);
template cudaError_t launch_grouped_expand_as<__nv_bfloat16, __nv_bfloat16>(const ExpandParams&,
                                                                            const GroupedTuning&,
                                                                            bool, bool,
                                                                            cudaStream_t);

}  // namespace lora_bench::kernels
