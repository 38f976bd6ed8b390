#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/chains.h"
#include "kernels/clustered/clustered.h"
#include "kernels/clustered/clustered_plan.h"
#include "kernels/divide_up.h"

namespace lora_bench::kernels {

// Instantiated in clustered_<dtype>.cu.
template <typename T, typename H>
cudaError_t launch_clustered_as(const ShrinkParams& shrink, const ExpandParams& expand,
                                const ClusteredTuning& tuning, const ClusteredPlan& plan,
                                cudaStream_t stream);

cudaError_t launch_clustered(Number number, Number intermediate, const ShrinkParams& shrink,
                             const ExpandParams& expand, const ClusteredTuning& tuning, bool linked,
                             cudaStream_t stream) {
  if (!tuning.fits) {
    return cudaErrorInvalidConfiguration;
  }
  if (tuning.tiles == 0) {
    return cudaSuccess;
  }
  const bool wide = intermediate == Number::kFp32;
  if (!wide && intermediate != number) {
    return cudaErrorInvalidValue;
  }
  ClusteredPlan plan;
  plan.cluster = tuning.cluster;
  plan.chain = static_cast<std::int32_t>(chain_length(shrink.in_features));
  plan.lane_pitch = static_cast<std::int32_t>(divide_up(shrink.max_rank, 8) * 8);
  plan.sums_pitch = static_cast<std::int32_t>(clustered_sums_pitch(shrink.slices, shrink.max_rank));
  plan.slots = tuning.slots;
  plan.slot_bytes = tuning.slot_bytes;
  plan.hidden_bytes = tuning.hidden_bytes;
  plan.x_bytes = tuning.x_bytes;
  for (int slice = 0; slice < expand.slices; ++slice) {
    plan.units += static_cast<std::int32_t>(divide_up(expand.width[slice], kClusteredColumns));
  }
  plan.linked = linked;
  switch (number) {
    case Number::kBf16:
      return wide ? launch_clustered_as<__nv_bfloat16, float>(shrink, expand, tuning, plan, stream)
                  : launch_clustered_as<__nv_bfloat16, __nv_bfloat16>(shrink, expand, tuning, plan,
                                                                      stream);
    case Number::kFp16:
      return wide ? launch_clustered_as<__half, float>(shrink, expand, tuning, plan, stream)
                  : launch_clustered_as<__half, __half>(shrink, expand, tuning, plan, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace lora_bench::kernels
