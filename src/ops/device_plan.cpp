#include "ops/device_plan.h"

#include <fmt/format.h>

#include <limits>

#include "core/error.h"
#include "kernels/plan/plan_tuning.h"

#ifdef LORA_BENCH_HAVE_CUDA
#include "device/cuda_check.h"
#include "kernels/plan/plan.h"
#else
#include "device/facts.h"
#endif

namespace lora_bench {

Support device_plan_takes(const DevicePlanShape& shape) {
  if (shape.most_tokens > std::numeric_limits<std::int32_t>::max()) {
    return {false, fmt::format("{} tokens: indices of a plan are 32-bit", shape.most_tokens)};
  }
  if (kernels::plan_tuning(shape.most_tokens, shape.slots, shape.compute_capability).blocks == 0) {
    return {false,
            fmt::format("{} slots: shared memory has no room for a counter of each", shape.slots)};
  }
  return {};
}

#ifdef LORA_BENCH_HAVE_CUDA

void launch_device_plan(const DevicePlan& plan, std::int64_t tokens, const DevicePlanShape& shape,
                        Stream stream) {
  const Support support = device_plan_takes(shape);
  if (!support.yes || tokens > shape.most_tokens) {
    throw CaseError(support.yes ? fmt::format("a plan of {} tokens in a launch for {}", tokens,
                                              shape.most_tokens)
                                : support.why_not);
  }
  kernels::PlanParams params;
  params.adapter_of_token = plan.adapter_of_token;
  params.token_order = plan.token_order;
  params.active_ids = plan.active_ids;
  params.group_starts = plan.group_starts;
  params.counts = plan.counts;
  params.active = plan.active;
  params.tokens = static_cast<std::int32_t>(tokens);
  params.slots = static_cast<std::int32_t>(shape.slots);
  LORA_BENCH_CUDA_CHECK(kernels::launch_plan(
      params, kernels::plan_tuning(shape.most_tokens, shape.slots, shape.compute_capability),
      static_cast<cudaStream_t>(stream.handle)));
}

#else

void launch_device_plan(const DevicePlan&, std::int64_t, const DevicePlanShape&, Stream) {
  throw EnvironmentError(why_no_gpu());
}

#endif

}  // namespace lora_bench
