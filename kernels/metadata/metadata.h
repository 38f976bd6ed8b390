#pragma once

#include <cuda_runtime_api.h>

#include "kernels/params.h"
#include "kernels/plan/plan_tuning.h"

namespace lora_bench::kernels {

// The lists of a mixture of experts. A pair is a row with one of its experts, number
// row * top_k + choice; an expert that is none of `experts` is elsewhere.
struct AlignFormParams {
  EngineParams engine;
  const std::int32_t* expert_of_choice = nullptr;  // [rows, top_k]
  std::int32_t experts = 0;
  std::int32_t top_k = 0;
  std::int32_t block = 0;                   // pairs of a block, a power of two
  std::int32_t most_pairs = 0;              // places of the list of a slot
  std::int32_t* pair_order = nullptr;       // [slots, most_pairs], rows * top_k is padding
  std::int32_t* expert_of_block = nullptr;  // [slots, most_pairs / block], -1 after the blocks
  std::int32_t* padded_pairs = nullptr;     // [slots]; these three of slots that rows have
  std::int32_t* active_ids = nullptr;       // [slots + 1], ascending from -1, -1 after them
  std::int32_t* enabled = nullptr;          // [slots + 1]
};

// One launch each, whose shape depends on sizes and tuning alone; nothing of the host is read or
// waited for. The tuning is that of `metadata_tuning` for as many rows or more;
// cudaErrorInvalidValue for one without blocks.
[[nodiscard]] cudaError_t launch_kernel_form(const KernelFormParams& params,
                                             const PlanTuning& tuning, cudaStream_t stream);
[[nodiscard]] cudaError_t launch_chunked_form(const ChunkedFormParams& params,
                                              const PlanTuning& tuning, cudaStream_t stream);
// Two launches: of the slots that rows have, then of the pairs of each.
[[nodiscard]] cudaError_t launch_align_form(const AlignFormParams& params,
                                            const AlignTuning& tuning, cudaStream_t stream);
[[nodiscard]] cudaError_t launch_prefill_form(const PrefillFormParams& params,
                                              const PlanTuning& tuning, cudaStream_t stream);
[[nodiscard]] cudaError_t launch_sampler_form(const SamplerFormParams& params, cudaStream_t stream);
[[nodiscard]] cudaError_t launch_embedding_form(const EmbeddingFormParams& params,
                                                cudaStream_t stream);

}  // namespace lora_bench::kernels
