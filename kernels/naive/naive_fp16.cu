#include "kernels/naive/naive.cuh"

namespace lora_bench::kernels {

template cudaError_t launch_shrink_as<__half, float>(const ShrinkParams&, const NaiveTuning&,
                                                     cudaStream_t);
template cudaError_t launch_shrink_as<__half, __half>(const ShrinkParams&, const NaiveTuning&,
                                                      cudaStream_t);
template cudaError_t launch_expand_as<__half, float>(const ExpandParams&, const NaiveTuning&,
                                                     cudaStream_t);
template cudaError_t launch_expand_as<__half, __half>(const ExpandParams&, const NaiveTuning&,
                                                      cudaStream_t);

}  // namespace lora_bench::kernels
