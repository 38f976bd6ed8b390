#include "kernels/chunked/chunked_launch.cuh"

namespace lora_bench::kernels {

template cudaError_t launch_chunked_shrink_as<__nv_bfloat16>(const ShrinkParams&, bool,
                                                             const ChunkedTuning&, bool,
                                                             cudaStream_t);
template cudaError_t launch_chunked_expand_as<__nv_bfloat16, float>(const ExpandParams&,
                                                                    const ChunkedTuning&, bool,
                                                                    bool, cudaStream_t);
template cudaError_t launch_chunked_expand_as<__nv_bfloat16, __nv_bfloat16>(const ExpandParams&,
                                                                            const ChunkedTuning&,
                                                                            bool, bool,
                                                                            cudaStream_t);

}  // namespace lora_bench::kernels
