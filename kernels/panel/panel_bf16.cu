#include "kernels/panel/panel_launch.cuh"

namespace lora_bench::kernels {

template cudaError_t launch_panel_shrink_as<__nv_bfloat16>(const ShrinkParams&,
                                                           const PanelShrinkTuning&,
                                                           const PanelShrinkPlan&, cudaStream_t);
template cudaError_t launch_panel_expand_as<__nv_bfloat16, float>(const ExpandParams&,
                                                                  const PanelExpandTuning&,
                                                                  const PanelExpandPlan&, bool,
                                                                  cudaStream_t);
template cudaError_t launch_panel_expand_as<__nv_bfloat16, __nv_bfloat16>(const ExpandParams&,
                                                                          const PanelExpandTuning&,
                                                                          const PanelExpandPlan&,
                                                                          bool, cudaStream_t);
template cudaError_t launch_panel_hidden_as<__nv_bfloat16>(const ShrinkParams&, const PanelSums&,
                                                           cudaStream_t);

template cudaError_t launch_panel_hidden_as<float>(const ShrinkParams&, const PanelSums&,
                                                   cudaStream_t);

}  // namespace lora_bench::kernels
