#include "kernels/bgmv/bgmv_launch.cuh"

namespace lora_bench::kernels {

template cudaError_t launch_bgmv_shrink_as<__nv_bfloat16, float>(const ShrinkParams&,
                                                                 const BgmvShrinkTuning&, bool,
                                                                 cudaStream_t);
template cudaError_t launch_bgmv_shrink_as<__nv_bfloat16, __nv_bfloat16>(const ShrinkParams&,
                                                                         const BgmvShrinkTuning&,
                                                                         bool, cudaStream_t);
template cudaError_t launch_bgmv_expand_as<__nv_bfloat16, float>(const ExpandParams&,
                                                                 const BgmvExpandTuning&, bool,
                                                                 cudaStream_t);
template cudaError_t launch_bgmv_expand_as<__nv_bfloat16, __nv_bfloat16>(const ExpandParams&,
                                                                         const BgmvExpandTuning&,
                                                                         bool, cudaStream_t);

}  // namespace lora_bench::kernels
