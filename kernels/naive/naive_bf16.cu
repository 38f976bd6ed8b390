#include "kernels/naive/naive.cuh"

namespace lora_bench::kernels {

template cudaError_t launch_shrink_as<__nv_bfloat16, float>(const ShrinkParams&, const NaiveTuning&,
                                                            cudaStream_t);
template cudaError_t launch_shrink_as<__nv_bfloat16, __nv_bfloat16>(const ShrinkParams&,
                                                                    const NaiveTuning&,
                                                                    cudaStream_t);
template cudaError_t launch_expand_as<__nv_bfloat16, float>(const ExpandParams&, const NaiveTuning&,
                                                            cudaStream_t);
template cudaError_t launch_expand_as<__nv_bfloat16, __nv_bfloat16>(const ExpandParams&,
                                                                    const NaiveTuning&,
                                                                    cudaStream_t);

}  // namespace lora_bench::kernels
