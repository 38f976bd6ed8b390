#include "kernels/panel/panel_launch.cuh"

namespace lora_bench::kernels {

template cudaError_t launch_panel_shrink_eight_as<__half>(const ShrinkParams&,
                                                          const PanelShrinkTuning&,
                                                          const PanelShrinkEightPlan&,
                                                          cudaStream_t);
template cudaError_t launch_panel_expand_eight_as<__half>(const ExpandParams&,
                                                          const PanelExpandTuning&,
                                                          const PanelExpandEightPlan&, bool,
                                                          cudaStream_t);

}  // namespace lora_bench::kernels
