#pragma once

#include <cuda_runtime_api.h>

#include "kernels/params.h"
#include "kernels/plan/plan_tuning.h"

namespace lora_bench::kernels {

// One launch each, whose shape depends on sizes and tuning alone; nothing of the host is read or
// waited for. The tuning is that of `metadata_tuning` for as many rows or more;
// cudaErrorInvalidValue for one without blocks.
[[nodiscard]] cudaError_t launch_kernel_form(const KernelFormParams& params,
                                             const PlanTuning& tuning, cudaStream_t stream);
[[nodiscard]] cudaError_t launch_chunked_form(const ChunkedFormParams& params,
                                              const PlanTuning& tuning, cudaStream_t stream);
[[nodiscard]] cudaError_t launch_prefill_form(const PrefillFormParams& params,
                                              const PlanTuning& tuning, cudaStream_t stream);
[[nodiscard]] cudaError_t launch_sampler_form(const SamplerFormParams& params, cudaStream_t stream);
[[nodiscard]] cudaError_t launch_embedding_form(const EmbeddingFormParams& params,
                                                cudaStream_t stream);

}  // namespace lora_bench::kernels
