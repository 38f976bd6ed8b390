#pragma once

#include <cuda_runtime_api.h>

#include "kernels/panel/panel_tuning.h"
#include "kernels/params.h"

namespace lora_bench::kernels {

// h between the kernels: fp32 sums, not scaled, [parts][slices][tokens][max_rank], each part
// panel_part_elements long; added in pairs they are h. See panel_workspace_elements.
struct PanelSums {
  float* sums = nullptr;
  const float* scale = nullptr;  // [slots], what shrink would have applied; null: nothing
  std::int64_t elements = 0;     // of one part
  std::int32_t parts = 1;        // 1, 2, 4 or 8
};

// Whether grouped tiles are compiled; they run on compute capability 9.0 alone.
[[nodiscard]] bool panel_has_groups();

// Only lanes below the adapter's rank are written. Needs compute capability 8.0; x and A are kBf16
// or kFp16. Starts while the kernel before it ends and reads the plan and the ranks meanwhile: that
// kernel must not be what writes them.
[[nodiscard]] cudaError_t launch_panel_shrink(Number number, const ShrinkParams& params,
                                              const PanelShrinkTuning& tuning,
                                              const PanelSums& sums, cudaStream_t stream);

// params.h = the sums, scaled and rounded to `intermediate`: where shrink is the whole op.
[[nodiscard]] cudaError_t launch_panel_hidden(Number intermediate, const ShrinkParams& params,
                                              const PanelSums& sums, cudaStream_t stream);

// h from `sums`, rounded to `intermediate`, when sums.sums is given, else from params.h. `linked`:
// directly after the shrink of the same step; starts while that still runs.
[[nodiscard]] cudaError_t launch_panel_expand(Number number, Number intermediate,
                                              const ExpandParams& params,
                                              const PanelExpandTuning& tuning,
                                              const PanelSums& sums, bool linked,
                                              cudaStream_t stream);

// The pair beside weights of eight bits and an fp32 h, for tiles that eight_bits_take names. Scales
// of A are multiplied into h by expand. Needs compute capability 9.0; max_rank, in_features and
// widths are multiples of 8, and addresses of 16 bytes.
[[nodiscard]] cudaError_t launch_panel_shrink_eight(Number number, const ShrinkParams& params,
                                                    const PanelShrinkTuning& tuning,
                                                    const PanelSums& sums, bool e5m2,
                                                    cudaStream_t stream);
[[nodiscard]] cudaError_t launch_panel_expand_eight(Number number, const ExpandParams& params,
                                                    const WeightScales& scales,
                                                    const PanelExpandTuning& tuning,
                                                    const PanelSums& sums, bool linked,
                                                    cudaStream_t stream);

}  // namespace lora_bench::kernels
