#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/chains.h"
#include "kernels/clustered/resident.h"
#include "kernels/clustered/resident_plan.h"
#include "kernels/divide_up.h"

namespace lora_bench::kernels {

// Instantiated in resident_<dtype>.cu.
template <typename T, typename H>
cudaError_t launch_resident_as(const ShrinkParams& shrink, const ExpandParams& expand,
                               const ResidentTuning& tuning, const ResidentPlan& plan,
                               cudaStream_t stream);

cudaError_t launch_resident(Number number, Number intermediate, const ShrinkParams& shrink,
                            const ExpandParams& expand, const ResidentTuning& tuning, bool linked,
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
  ResidentPlan plan;
  plan.cluster = tuning.cluster;
  plan.chain = static_cast<std::int32_t>(chain_length(shrink.in_features));
  plan.lane_pitch = tuning.lane_pitch;
  plan.sums_pitch = static_cast<std::int32_t>(shrink.slices * divide_up(shrink.max_rank, 8) * 8);
  plan.sums = tuning.sums;
  plan.x = tuning.x;
  plan.a = tuning.a;
  plan.b = tuning.b;
  std::int64_t units = 0;
  for (int slice = 0; slice < expand.slices; ++slice) {
    units += divide_up(expand.width[slice], kResidentColumns);
  }
  const int shares = tuning.cluster * tuning.groups;
  plan.units_each = static_cast<std::int32_t>(units / shares);
  plan.units_more = static_cast<std::int32_t>(units % shares);
  plan.linked = linked;
  switch (number) {
    case Number::kBf16:
      return wide ? launch_resident_as<__nv_bfloat16, float>(shrink, expand, tuning, plan, stream)
                  : launch_resident_as<__nv_bfloat16, __nv_bfloat16>(shrink, expand, tuning, plan,
                                                                     stream);
    case Number::kFp16:
      return wide ? launch_resident_as<__half, float>(shrink, expand, tuning, plan, stream)
                  : launch_resident_as<__half, __half>(shrink, expand, tuning, plan, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace lora_bench::kernels
