#include "kernels/panel/panel_launch.cuh"

namespace lora_bench::kernels {

template cudaError_t launch_panel_shrink_as<__half>(const ShrinkParams&, const PanelShrinkTuning&,
                                                    const PanelShrinkPlan&, cudaStream_t);
template cudaError_t launch_panel_expand_as<__half, float>(const ExpandParams&,
                                                           const PanelExpandTuning&,
                                                           const PanelExpandPlan&, bool,
                                                           cudaStream_t);
template cudaError_t launch_panel_expand_as<__half, __half>(const ExpandParams&,
                                                            const PanelExpandTuning&,
                                                            const PanelExpandPlan&, bool,
                                                            cudaStream_t);
template cudaError_t launch_panel_hidden_as<__half>(const ShrinkParams&, const PanelSums&,
                                                    cudaStream_t);

}  // namespace lora_bench::kernels
