#include "kernels/naive/naive.cuh"

namespace lora_bench::kernels {

template cudaError_t launch_shrink_of<float>(const NaiveNumbers&, const ShrinkParams&,
                                             const NaiveStrides&, const NaiveScales&,
                                             const NaiveTuning&, cudaStream_t);
template cudaError_t launch_expand_of<float>(const NaiveNumbers&, const ExpandParams&,
                                             const NaiveStrides&, const NaiveScales&,
                                             const NaiveTuning&, cudaStream_t);

}  // namespace lora_bench::kernels
