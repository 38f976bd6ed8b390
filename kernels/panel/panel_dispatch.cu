#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/chains.h"
#include "kernels/panel/panel.h"
#include "kernels/panel/panel_plan.h"

namespace lora_bench::kernels {

// Instantiated in panel_<dtype>.cu.
template <typename T>
cudaError_t launch_panel_shrink_as(const ShrinkParams& params, const PanelShrinkTuning& tuning,
                                   const PanelShrinkPlan& plan, cudaStream_t stream);
template <typename T, typename H>
cudaError_t launch_panel_expand_as(const ExpandParams& params, const PanelExpandTuning& tuning,
                                   const PanelExpandPlan& plan, bool linked, cudaStream_t stream);
template <typename T>
cudaError_t launch_panel_shrink_eight_as(const ShrinkParams& params,
                                         const PanelShrinkTuning& tuning,
                                         const PanelShrinkEightPlan& plan, cudaStream_t stream);
template <typename T>
cudaError_t launch_panel_expand_eight_as(const ExpandParams& params,
                                         const PanelExpandTuning& tuning,
                                         const PanelExpandEightPlan& plan, bool linked,
                                         cudaStream_t stream);
template <typename H>
cudaError_t launch_panel_hidden_as(const ShrinkParams& params, const PanelSums& sums,
                                   cudaStream_t stream);

bool panel_has_groups() {
#ifdef LORA_BENCH_HAVE_SM90A
  return true;
#else
  return false;
#endif
}

namespace {

// Calls `launch` with the type of x and y.
template <typename Launch>
cudaError_t visit_rows(Number number, const Launch& launch) {
  switch (number) {
    case Number::kBf16:
      return launch.template operator()<__nv_bfloat16>();
    case Number::kFp16:
      return launch.template operator()<__half>();
    default:
      return cudaErrorInvalidValue;
  }
}

PanelShrinkPlan shrink_plan(const ShrinkParams& params, const PanelShrinkTuning& tuning,
                            const PanelSums& sums) {
  PanelShrinkPlan plan;
  plan.sums = sums;
  plan.chain = static_cast<std::int32_t>(chain_length(params.in_features));
  plan.lane_tiles = static_cast<std::int32_t>(tuning.lane_tiles);
  plan.split = tuning.split;
  plan.levels = tuning.levels;
  return plan;
}

PanelExpandPlan expand_plan(const PanelExpandTuning& tuning, const PanelSums& sums) {
  PanelExpandPlan plan;
  plan.sums = sums;
  plan.chunks = static_cast<std::int32_t>(tuning.chunks);
  plan.tiles = static_cast<std::int32_t>(tuning.column_tiles);
  return plan;
}

}  // namespace

cudaError_t launch_panel_shrink(Number number, const ShrinkParams& params,
                                const PanelShrinkTuning& tuning, const PanelSums& sums,
                                cudaStream_t stream) {
  const PanelShrinkPlan plan = shrink_plan(params, tuning, sums);
  return visit_rows(number, [&]<typename T>() {
    return launch_panel_shrink_as<T>(params, tuning, plan, stream);
  });
}

cudaError_t launch_panel_shrink_eight(Number number, const ShrinkParams& params,
                                      const PanelShrinkTuning& tuning, const PanelSums& sums,
                                      bool e5m2, cudaStream_t stream) {
  const PanelShrinkEightPlan plan{shrink_plan(params, tuning, sums), e5m2};
  return visit_rows(number, [&]<typename T>() {
    return launch_panel_shrink_eight_as<T>(params, tuning, plan, stream);
  });
}

cudaError_t launch_panel_expand_eight(Number number, const ExpandParams& params,
                                      const WeightScales& scales, const PanelExpandTuning& tuning,
                                      const PanelSums& sums, bool linked, cudaStream_t stream) {
  const PanelExpandEightPlan plan{expand_plan(tuning, sums), scales};
  return visit_rows(number, [&]<typename T>() {
    return launch_panel_expand_eight_as<T>(params, tuning, plan, linked, stream);
  });
}

cudaError_t launch_panel_hidden(Number intermediate, const ShrinkParams& params,
                                const PanelSums& sums, cudaStream_t stream) {
  switch (intermediate) {
    case Number::kFp32:
      return launch_panel_hidden_as<float>(params, sums, stream);
    case Number::kBf16:
      return launch_panel_hidden_as<__nv_bfloat16>(params, sums, stream);
    case Number::kFp16:
      return launch_panel_hidden_as<__half>(params, sums, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t launch_panel_expand(Number number, Number intermediate, const ExpandParams& params,
                                const PanelExpandTuning& tuning, const PanelSums& sums, bool linked,
                                cudaStream_t stream) {
  const bool wide = intermediate == Number::kFp32;
  if (!wide && intermediate != number) {
    return cudaErrorInvalidValue;
  }
  const PanelExpandPlan plan = expand_plan(tuning, sums);
  return visit_rows(number, [&]<typename T>() {
    return wide ? launch_panel_expand_as<T, float>(params, tuning, plan, linked, stream)
                : launch_panel_expand_as<T, T>(params, tuning, plan, linked, stream);
  });
}

}  // namespace lora_bench::kernels
