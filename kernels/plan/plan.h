#pragma once

#include <cuda_runtime_api.h>

#include "kernels/params.h"
#include "kernels/plan/plan_tuning.h"

namespace lora_bench::kernels {

// One launch whose shape depends on `tuning` alone; nothing of the host is read or waited for.
// params.tokens may be any number up to what the tuning is for. cudaErrorInvalidValue for a tuning
// without blocks.
[[nodiscard]] cudaError_t launch_plan(const PlanParams& params, const PlanTuning& tuning,
                                      cudaStream_t stream);

}  // namespace lora_bench::kernels
