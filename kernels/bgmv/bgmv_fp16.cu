#include "kernels/bgmv/bgmv_launch.cuh"

namespace lora_bench::kernels {

template cudaError_t launch_bgmv_shrink_as<__half, float>(const ShrinkParams&,
                                                          const BgmvShrinkTuning&, bool,
                                                          cudaStream_t);
template cudaError_t launch_bgmv_shrink_as<__half, __half>(const ShrinkParams&,
                                                           const BgmvShrinkTuning&, bool,
                                                           cudaStream_t);
template cudaError_t launch_bgmv_expand_as<__half, float>(const ExpandParams&,
                                                          const BgmvExpandTuning&, bool,
                                                          cudaStream_t);
template cudaError_t launch_bgmv_expand_as<__half, __half>(const ExpandParams&,
                                                           const BgmvExpandTuning&, bool,
                                                           cudaStream_t);

}  // namespace lora_bench::kernels
