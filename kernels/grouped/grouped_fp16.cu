#include "kernels/grouped/grouped_launch.cuh"

namespace lora_bench::kernels {

template cudaError_t launch_grouped_shrink_as<__half>(const ShrinkParams&, const ShrinkStore&,
                                                      const GroupedTuning&, bool, cudaStream_t);
template cudaError_t launch_grouped_expand_as<__half, float>(const ExpandParams&,
                                                             const GroupedTuning&, bool, bool,
                                                             cudaStream_t);
template cudaError_t launch_grouped_expand_as<__half, __half>(const ExpandParams&,
                                                              const GroupedTuning&, bool, bool,
                                                              cudaStream_t);

}  // namespace lora_bench::kernels
