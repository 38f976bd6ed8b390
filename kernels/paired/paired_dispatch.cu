#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/paired/paired.h"
#include "kernels/paired/paired_plan.h"

namespace lora_bench::kernels {

// Instantiated in paired_<dtype>.cu.
template <typename T>
cudaError_t launch_paired_shrink_as(const ShrinkParams& params, const PairedShrinkTuning& tuning,
                                    const PairedShrinkPlan& plan, bool vectors,
                                    cudaStream_t stream);
template <typename T, typename H>
cudaError_t launch_paired_expand_as(const ExpandParams& params, const PairedExpandTuning& tuning,
                                    const PairedExpandPlan& plan, const PairedExpandAccess& access,
                                    cudaStream_t stream);

cudaError_t launch_paired_shrink(Number number, const ShrinkParams& params,
                                 const PairedShrinkTuning& tuning, const PairedHidden& hidden,
                                 bool vectors, cudaStream_t stream) {
  PairedShrinkPlan plan;
  plan.sums = hidden.sums;
  plan.lane_tiles = tuning.lane_tiles;
  plan.group_depth = paired_group_depth(params.in_features);
  plan.groups = static_cast<std::int32_t>(paired_groups(params.in_features));
  plan.parts = static_cast<std::int32_t>(tuning.parts);
  switch (number) {
    case Number::kBf16:
      return launch_paired_shrink_as<__nv_bfloat16>(params, tuning, plan, vectors, stream);
    case Number::kFp16:
      return launch_paired_shrink_as<__half>(params, tuning, plan, vectors, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t launch_paired_expand(Number number, Number intermediate, const ExpandParams& params,
                                 const PairedExpandTuning& tuning, const PairedHidden& hidden,
                                 const PairedExpandAccess& access, cudaStream_t stream) {
  const bool wide = intermediate == Number::kFp32;
  if (!wide && intermediate != number) {
    return cudaErrorInvalidValue;
  }
  PairedExpandPlan plan;
  plan.sums = hidden.sums;
  if (wide && plan.sums == nullptr) {
    plan.sums = static_cast<const float*>(params.h);
  }
  plan.scale = hidden.scale;
  plan.elements = hidden.elements;
  plan.column_tiles = tuning.column_tiles;
  plan.columns_per_tile = tuning.columns_per_tile;
  plan.holds_h = tuning.holds_h;
  plan.parts = hidden.parts;
  plan.vector_y = access.vector_y;
  switch (number) {
    case Number::kBf16:
      return wide ? launch_paired_expand_as<__nv_bfloat16, float>(params, tuning, plan, access,
                                                                  stream)
                  : launch_paired_expand_as<__nv_bfloat16, __nv_bfloat16>(params, tuning, plan,
                                                                          access, stream);
    case Number::kFp16:
      return wide ? launch_paired_expand_as<__half, float>(params, tuning, plan, access, stream)
                  : launch_paired_expand_as<__half, __half>(params, tuning, plan, access, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace lora_bench::kernels
