#include <fmt/format.h>

#include <limits>

#include "core/error.h"
#include "kernels/plan/plan_tuning.h"
#include "ops/backends.h"

#ifdef LORA_BENCH_HAVE_CUDA
#include "device/cuda_check.h"
#include "kernels/metadata/metadata.h"
#endif

namespace lora_bench {
namespace {

kernels::AlignTuning align_tuning_of(const MetadataProblem& problem, int compute_capability) {
  return kernels::align_tuning(problem.tokens, problem.slots, problem.experts, problem.top_k,
                               compute_capability);
}

Support align_support(const MetadataProblem& problem, int compute_capability) {
  constexpr std::int64_t kMostPlaces = std::numeric_limits<std::int32_t>::max();
  if (problem.most_pairs() > kMostPlaces) {
    return {false, fmt::format("lists of {} places: an index of 32 bits has no room for that",
                               problem.most_pairs())};
  }
  return align_tuning_of(problem, compute_capability).pairs.blocks > 0
             ? Support{}
             : Support{false, fmt::format("{} slots, {} experts: shared memory has no room for a "
                                          "counter of each expert, or a grid for that many slots",
                                          problem.slots, problem.experts)};
}

// Of the forms that group rows; prefill keeps no counter of a slot.
kernels::PlanTuning tuning_of(const MetadataProblem& problem, int compute_capability) {
  const std::int64_t slots = problem.form == Form::kPrefill ? 0 : problem.slots;
  return kernels::plan_tuning(problem.tokens, slots, compute_capability,
                              problem.form == Form::kChunked);
}

#ifdef LORA_BENCH_HAVE_CUDA

template <typename Value>
const Value* input(const ArrayOperands& operands, std::size_t index) {
  return static_cast<const Value*>(operands.inputs[index]);
}

template <typename Value>
Value* output(const ArrayOperands& operands, std::size_t index) {
  return static_cast<Value*>(operands.outputs[index]);
}

kernels::EngineParams engine_params(const MetadataProblem& problem, const ArrayOperands& operands) {
  const bool samples = problem.form == Form::kSampler;
  return {.request_of_row = input<std::int32_t>(operands, 0),
          .slot_of_request = input<std::int32_t>(operands, 1),
          .rows = static_cast<std::int32_t>(samples ? problem.samples : problem.tokens),
          .requests = static_cast<std::int32_t>(problem.requests),
          .slots = static_cast<std::int32_t>(problem.slots)};
}

kernels::KernelFormParams kernel_form_params(const MetadataProblem& problem,
                                             const ArrayOperands& operands) {
  return {.engine = engine_params(problem, operands),
          .adapter_of_token = output<std::int32_t>(operands, 0),
          .token_order = output<std::int32_t>(operands, 1),
          .active_ids = output<std::int32_t>(operands, 2),
          .counts = output<std::int32_t>(operands, 3),
          .starts = output<std::int32_t>(operands, 4),
          .active = output<std::int32_t>(operands, 5),
          .no_adapter = output<std::int32_t>(operands, 6)};
}

kernels::PrefillFormParams prefill_form_params(const MetadataProblem& problem,
                                               const ArrayOperands& operands) {
  return {.engine = engine_params(problem, operands),
          .starts = output<std::int32_t>(operands, 0),
          .lengths = output<std::int32_t>(operands, 1),
          .adapters = output<std::int32_t>(operands, 2),
          .batch_size = output<std::int32_t>(operands, 3),
          .longest = output<std::int32_t>(operands, 4),
          .tokens = output<std::int32_t>(operands, 5),
          .no_adapter = output<std::int32_t>(operands, 6)};
}

kernels::ChunkedFormParams chunked_form_params(const MetadataProblem& problem,
                                               const ArrayOperands& operands) {
  return {.engine = engine_params(problem, operands),
          .rank = input<std::int32_t>(operands, 2),
          .scale = input<float>(operands, 3),
          .chunk = static_cast<std::int32_t>(problem.chunk),
          .most_segments = static_cast<std::int32_t>(problem.most_segments()),
          .idle_segments = problem.idle_segments,
          .permutation = output<std::int32_t>(operands, 0),
          .segment_starts = output<std::int32_t>(operands, 1),
          .adapter_of_segment = output<std::int32_t>(operands, 2),
          .ranks = output<std::int32_t>(operands, 3),
          .scales = output<float>(operands, 4),
          .segments = output<std::int32_t>(operands, 5),
          .chunk_out = output<std::int32_t>(operands, 6)};
}

kernels::AlignFormParams align_form_params(const MetadataProblem& problem,
                                           const ArrayOperands& operands) {
  return {.engine = engine_params(problem, operands),
          .expert_of_choice = input<std::int32_t>(operands, 2),
          .experts = static_cast<std::int32_t>(problem.experts),
          .top_k = static_cast<std::int32_t>(problem.top_k),
          .block = static_cast<std::int32_t>(problem.block),
          .most_pairs = static_cast<std::int32_t>(problem.most_pairs()),
          .pair_order = output<std::int32_t>(operands, 0),
          .expert_of_block = output<std::int32_t>(operands, 1),
          .padded_pairs = output<std::int32_t>(operands, 2),
          .active_ids = output<std::int32_t>(operands, 3),
          .enabled = output<std::int32_t>(operands, 4)};
}

cudaError_t launch_form(const MetadataProblem& problem, const ArrayOperands& operands,
                        int compute_capability, cudaStream_t stream) {
  const kernels::PlanTuning tuning = tuning_of(problem, compute_capability);
  switch (problem.form) {
    case Form::kKernel:
      return kernels::launch_kernel_form(kernel_form_params(problem, operands), tuning, stream);
    case Form::kPrefill:
      return kernels::launch_prefill_form(prefill_form_params(problem, operands), tuning, stream);
    case Form::kSampler:
      return kernels::launch_sampler_form({.engine = engine_params(problem, operands),
                                           .adapters = output<std::int32_t>(operands, 0),
                                           .padded = output<std::int64_t>(operands, 1)},
                                          stream);
    case Form::kEmbedding:
      return kernels::launch_embedding_form({.engine = engine_params(problem, operands),
                                             .vocabulary = problem.vocabulary,
                                             .extra_vocabulary = problem.extra_vocabulary,
                                             .extra = output<std::int64_t>(operands, 0),
                                             .table = output<std::int64_t>(operands, 1)},
                                            stream);
    case Form::kChunked:
      return kernels::launch_chunked_form(chunked_form_params(problem, operands), tuning, stream);
    case Form::kAlign:
      return kernels::launch_align_form(align_form_params(problem, operands),
                                        align_tuning_of(problem, compute_capability), stream);
  }
  return cudaErrorInvalidValue;
}

#endif

// One launch a form, two of align (kernels/metadata).
class DeviceMetadata final : public MetadataBuilder {
 public:
  explicit DeviceMetadata(int compute_capability) : compute_capability_(compute_capability) {}

  [[nodiscard]] Support supports(const MetadataProblem& problem,
                                 const DeviceFacts&) const override {
    if (problem.form == Form::kAlign) {
      return align_support(problem, compute_capability_);
    }
    const bool groups = problem.form == Form::kKernel || problem.form == Form::kChunked;
    if (groups && tuning_of(problem, compute_capability_).blocks == 0) {
      return {false, fmt::format("{} slots: shared memory has no room for a counter of each",
                                 problem.slots)};
    }
    return {};
  }

  void launch([[maybe_unused]] const MetadataProblem& problem,
              [[maybe_unused]] const ArrayOperands& operands,
              [[maybe_unused]] Stream stream) const override {
#ifdef LORA_BENCH_HAVE_CUDA
    LORA_BENCH_CUDA_CHECK(launch_form(problem, operands, compute_capability_,
                                      static_cast<cudaStream_t>(stream.handle)));
#else
    throw EnvironmentError(why_no_gpu());
#endif
  }

 private:
  int compute_capability_;
};

}  // namespace

std::unique_ptr<MetadataBuilder> make_device_metadata(int compute_capability) {
  return std::make_unique<DeviceMetadata>(compute_capability);
}

}  // namespace lora_bench
