#include "ops/device_plan.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

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

namespace {

// Behind the workspace of the backend: the arrays of a plan that is made in each launch.
struct PlanBehindWorkspace {
  explicit PlanBehindWorkspace(const Problem& problem, std::int64_t workspace_bytes)
      : first((workspace_bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes),
        tokens(problem.tokens),
        slots(problem.slots) {}

  [[nodiscard]] std::int64_t bytes() const {
    constexpr std::int64_t kIndexBytes = sizeof(std::int32_t);
    return first + (tokens + 3 * slots + 5) * kIndexBytes;
  }
  [[nodiscard]] DevicePlan in(const Operands& operands) const {
    auto* next =
        reinterpret_cast<std::int32_t*>(static_cast<std::byte*>(operands.workspace) + first);
    const auto take = [&](std::int64_t words) { return std::exchange(next, next + words); };
    DevicePlan plan;
    plan.adapter_of_token = operands.adapter_of_token;
    plan.token_order = take(tokens);
    plan.active_ids = take(slots + 1);
    plan.group_starts = take(slots + 2);
    plan.counts = take(slots + 1);
    plan.active = take(1);
    return plan;
  }

  std::int64_t first, tokens, slots;
};

class PlanInEachLaunch final : public Backend {
 public:
  explicit PlanInEachLaunch(std::shared_ptr<const Backend> backend)
      : backend_(std::move(backend)) {}

  [[nodiscard]] std::string_view name() const override { return backend_->name(); }
  [[nodiscard]] std::string_view summary() const override { return backend_->summary(); }
  [[nodiscard]] Space space() const override { return backend_->space(); }
  [[nodiscard]] Support supports(const Problem& problem, const DeviceFacts& device) const override {
    if (space() == Space::kHost) {
      return {false, "plan.made_on device: the backend runs on the host"};
    }
    const Support of_plan = device_plan_takes(shape_of(problem));
    return of_plan.yes ? backend_->supports(problem, device) : of_plan;
  }
  [[nodiscard]] Numerics numerics(const Problem& problem) const override {
    return backend_->numerics(problem);
  }
  [[nodiscard]] std::int64_t workspace_bytes(const Problem& problem) const override {
    return PlanBehindWorkspace(problem, backend_->workspace_bytes(problem)).bytes();
  }
  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    const DevicePlan plan =
        PlanBehindWorkspace(problem, backend_->workspace_bytes(problem)).in(operands);
    launch_device_plan(plan, problem.tokens, shape_of(problem), stream);
    Operands planned = operands;
    planned.token_order = plan.token_order;
    planned.active_ids = plan.active_ids;
    planned.group_starts = plan.group_starts;
    backend_->launch(problem, planned, stream);
  }

 private:
  [[nodiscard]] static DevicePlanShape shape_of(const Problem& problem) {
    return {problem.tokens, problem.slots, facts_of(Space::kDevice).compute_capability};
  }

  std::shared_ptr<const Backend> backend_;
};

}  // namespace

std::shared_ptr<const Backend> with_device_plan(std::shared_ptr<const Backend> backend) {
  return std::make_shared<PlanInEachLaunch>(std::move(backend));
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
