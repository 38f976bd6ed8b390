#include "kernels/chunked/chunked_launch.cuh"

namespace lora_bench::kernels {

template cudaError_t launch_chunked_shrink_as<__half>(const ShrinkParams&, bool,
                                                      const ChunkedTuning&, bool, cudaStream_t);
template cudaError_t launch_chunked_expand_as<__half, float>(const ExpandParams&,
                                                             const ChunkedTuning&, bool, bool,
                                                             cudaStream_t);
template cudaError_t launch_chunked_expand_as<__half, __half>(const ExpandParams&,
                                                              const ChunkedTuning&, bool, bool,
                                                              cudaStream_t);

}  // namespace lora_bench::kernels
