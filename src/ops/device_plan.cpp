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

// A published form as op metadata would be asked for it: each slot is the one request of its own.
MetadataProblem form_of(const Problem& problem) {
  MetadataProblem form;
  form.form = published_form(problem.plan_form).value();
  form.tokens = problem.tokens;
  form.requests = problem.slots;
  form.slots = problem.slots;
  form.chunk = problem.chunk;
  form.idle_segments = problem.idle_segments;
  return form;
}

// Behind the workspace of the backend: the arrays of a published form.
class FormBehindWorkspace {
 public:
  FormBehindWorkspace(const Problem& problem, std::int64_t workspace_bytes)
      : form_(form_of(problem)),
        first_((workspace_bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes) {}

  [[nodiscard]] std::int64_t bytes() const {
    std::int64_t bytes = first_;
    for (const MetadataArray& array : outputs_of(form_)) {
      bytes += array.bytes();
    }
    return bytes;
  }
  // Where a launch makes the form, and the operands of one that runs on it.
  [[nodiscard]] ArrayOperands made_in(const Operands& operands) const {
    ArrayOperands made{.inputs = {operands.adapter_of_token, nullptr}, .outputs = {}};
    if (form_.form == Form::kChunked) {
      made.inputs.insert(made.inputs.end(), {operands.rank, operands.scale});
    }
    std::byte* next = static_cast<std::byte*>(operands.workspace) + first_;
    for (const MetadataArray& array : outputs_of(form_)) {
      made.outputs.push_back(next);
      next += array.bytes();
    }
    return made;
  }
  [[nodiscard]] Operands on(const ArrayOperands& made, const Operands& operands) const {
    Operands planned = operands;
    const std::vector<MetadataArray> arrays = outputs_of(form_);
    for (std::size_t index = 0; index < arrays.size(); ++index) {
      const void* const array = made.outputs[index];
      const std::string_view name = arrays[index].name;
      const auto* const indices = static_cast<const std::int32_t*>(array);
      if (name == "token_order" || name == "permutation") {
        planned.token_order = indices;
      } else if (name == "active_ids" || name == "adapter_of_segment") {
        planned.active_ids = indices;
      } else if (name == "starts" || name == "segment_starts") {
        planned.group_starts = indices;
      } else if (name == "rank") {
        planned.rank = indices;
      } else if (name == "scale") {
        planned.scale = static_cast<const float*>(array);
      }
    }
    return planned;
  }
  [[nodiscard]] const MetadataProblem& form() const { return form_; }

 private:
  MetadataProblem form_;
  std::int64_t first_;
};

class PlanInEachLaunch final : public BackendAround {
 public:
  explicit PlanInEachLaunch(std::shared_ptr<const Backend> backend)
      : BackendAround(*backend), kept_(std::move(backend)) {}

  [[nodiscard]] Support supports(const Problem& problem, const DeviceFacts& device) const override {
    if (space() == Space::kHost) {
      return {false, "plan.made_on device: the backend runs on the host"};
    }
    const Support of_plan =
        problem.plan_form == PlanForm::kSorted
            ? device_plan_takes(shape_of(problem))
            : make_device_metadata(device.compute_capability)->supports(form_of(problem), device);
    return of_plan.yes ? inner().supports(problem, device) : of_plan;
  }
  [[nodiscard]] std::int64_t workspace_bytes(const Problem& problem) const override {
    const std::int64_t own = inner().workspace_bytes(problem);
    return problem.plan_form == PlanForm::kSorted ? PlanBehindWorkspace(problem, own).bytes()
                                                  : FormBehindWorkspace(problem, own).bytes();
  }
  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    const std::int64_t own = inner().workspace_bytes(problem);
    if (problem.plan_form != PlanForm::kSorted) {
      const FormBehindWorkspace place(problem, own);
      const ArrayOperands made = place.made_in(operands);
      make_device_metadata(facts_of(Space::kDevice).compute_capability)
          ->launch(place.form(), made, stream);
      inner().launch(problem, place.on(made, operands), stream);
      return;
    }
    const DevicePlan plan = PlanBehindWorkspace(problem, own).in(operands);
    launch_device_plan(plan, problem.tokens, shape_of(problem), stream);
    Operands planned = operands;
    planned.token_order = plan.token_order;
    planned.active_ids = plan.active_ids;
    planned.group_starts = plan.group_starts;
    inner().launch(problem, planned, stream);
  }

 private:
  [[nodiscard]] static DevicePlanShape shape_of(const Problem& problem) {
    return {problem.tokens, problem.slots, facts_of(Space::kDevice).compute_capability};
  }

  std::shared_ptr<const Backend> kept_;
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
