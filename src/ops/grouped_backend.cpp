#include "ops/backends.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#ifdef LORA_BENCH_HAVE_CUDA
#include "device/cuda_check.h"
#include "kernels/grouped/grouped.h"
#include "kernels/tile/lanes.h"
#include "kernels/tile/tile_tuning.h"
#include "ops/idle_rows.h"
#include "ops/kernel_params.h"
#endif

namespace lora_bench {
#ifdef LORA_BENCH_HAVE_CUDA
namespace {

using kernels::Combine;

// The last dimension of a grid.
constexpr std::int64_t kMostGroups = 65535;
// Of a launch for any batch, whose blocks nearly all leave at once: each takes nanoseconds, and
// more of them would take longer than a watched launch may.
constexpr std::int64_t kMostBlocksOfAnyBatch = std::int64_t{1} << 22;

class GroupedBackend final : public Backend {
 public:
  GroupedBackend(std::string_view name, std::string_view summary, bool ordered,
                 std::int64_t multiprocessors)
      : name_(name), summary_(summary), ordered_(ordered), multiprocessors_(multiprocessors) {}

  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] std::string_view summary() const override { return summary_; }
  [[nodiscard]] Space space() const override { return Space::kDevice; }

  [[nodiscard]] Support supports(const Problem& problem, const DeviceFacts& device) const override {
    if (problem.groups() > kMostGroups) {
      return {false, "more than 65535 groups of rows: a grid has no more in its last dimension"};
    }
    if (const std::int64_t blocks = blocks_of_any_batch(problem); blocks > kMostBlocksOfAnyBatch) {
      return {false,
              fmt::format("plan.form: kernel: up to {} blocks for any batch over {} slots, at most "
                          "{}; plan.grid: active has those of this batch",
                          blocks, problem.slots, kMostBlocksOfAnyBatch)};
    }
    return tensor_cores_take(problem, device, Semantics(Semantic::kKernelForm));
  }

  [[nodiscard]] Numerics numerics(const Problem& problem) const override {
    const std::int64_t split = most_parts(problem);
    const bool wide = problem.dtype[Role::kH] == Dtype::kFp32;
    Numerics numerics;
    numerics.unit_roundoff = 0x1p-23;
    numerics.shrink_depth = std::max(kernels::tile_shrink_depth(problem.in_features, 1),
                                     kernels::tile_shrink_depth(problem.in_features, split));
    numerics.expand_depth = kernels::tile_expand_depth(problem.max_rank, wide);
    numerics.intermediate = problem.dtype[Role::kH];
    numerics.partials = split;
    numerics.deterministic =
        !has_shrink(problem.op) || combine_of(problem, split) != Combine::kAtomic;
    numerics.batch_invariant = !has_shrink(problem.op);  // the split follows the batch
    numerics.replays_other_batches = serves_any_batch(problem);
    numerics.summation =
        "fp32 on tensor cores; shrink: warps share each part of K, parts by atomics or in order; "
        "expand: one sum over the rank, an fp32 h as three bf16 terms";
    return numerics;
  }

  [[nodiscard]] std::int64_t workspace_bytes(const Problem& problem) const override {
    const std::int64_t split = most_parts(problem);
    if (!has_shrink(problem.op) || combine_of(problem, split) != Combine::kOrdered) {
      return 0;
    }
    return split * operand_of(problem, Role::kH).elements *
           static_cast<std::int64_t>(sizeof(float));
  }

  [[nodiscard]] bool zeroes(const Problem& problem) const override {
    return combine_of(problem, most_parts(problem)) == Combine::kAtomic;
  }

  void launch_zero(const Problem& problem, const Operands& operands, Stream stream) const override {
    LORA_BENCH_CUDA_CHECK(kernels::launch_zero_lanes(shrink_params(problem, operands),
                                                     static_cast<cudaStream_t>(stream.handle)));
  }

  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    enqueue_zero_idle_rows(problem, operands, stream);
    const auto handle = static_cast<cudaStream_t>(stream.handle);
    if (has_shrink(problem.op)) {
      shrink(problem, operands, handle);
    }
    if (has_expand(problem.op)) {
      expand(problem, operands, handle);
    }
  }

 private:
  [[nodiscard]] kernels::GroupedShape shape_of(const Problem& problem, bool vectors) const {
    kernels::GroupedShape shape;
    shape.group_starts = problem.plan.group_starts;
    shape.active = launched_groups(problem);
    shape.any_batch = problem.plan_form == PlanForm::kKernel;
    shape.rows = problem.tokens;
    shape.slices = problem.slices();
    shape.in_features = problem.in_features;
    for (const std::int64_t width : problem.widths) {
      shape.widest_slice = std::max(shape.widest_slice, width);
    }
    shape.max_rank = problem.max_rank;
    shape.multiprocessors = multiprocessors_;
    shape.vectors = vectors;
    return shape;
  }

  // Of the larger half; 0 where a launch is for its own batch.
  [[nodiscard]] std::int64_t blocks_of_any_batch(const Problem& problem) const {
    if (!serves_any_batch(problem)) {
      return 0;
    }
    const kernels::GroupedShape shape = shape_of(problem, false);
    std::int64_t most = 0;
    for (const auto tuning_for : {kernels::grouped_shrink_tuning, kernels::grouped_expand_tuning}) {
      const kernels::GroupedTuning tuning = tuning_for(shape);
      most = std::max(most, tuning.split * tuning.row_tiles * tuning.column_tiles);
    }
    return most * problem.slices() * problem.groups();
  }

  // Atomics need an fp32 h.
  [[nodiscard]] Combine combine_of(const Problem& problem, std::int64_t split) const {
    if (split == 1) {
      return Combine::kNone;
    }
    return ordered_ || problem.dtype[Role::kH] != Dtype::kFp32 ? Combine::kOrdered
                                                               : Combine::kAtomic;
  }

  // Whether operands can be read in vectors is known only with their addresses.
  [[nodiscard]] std::int64_t most_parts(const Problem& problem) const {
    return std::max(kernels::grouped_shrink_tuning(shape_of(problem, true)).split,
                    kernels::grouped_shrink_tuning(shape_of(problem, false)).split);
  }

  void shrink(const Problem& problem, const Operands& operands, cudaStream_t stream) const {
    const kernels::ShrinkParams params = shrink_params(problem, operands);
    const bool vectors = reads_vectors(params, size_bytes(problem.dtype[Role::kX]));
    const kernels::GroupedTuning tuning =
        kernels::grouped_shrink_tuning(shape_of(problem, vectors));
    kernels::ShrinkStore store;
    store.combine = combine_of(problem, tuning.split);
    store.wide = problem.dtype[Role::kH] == Dtype::kFp32;
    store.parts = static_cast<float*>(operands.workspace);
    const kernels::Number number = kernel_number(problem.dtype[Role::kX]);
    if (store.combine == Combine::kAtomic) {
      LORA_BENCH_CUDA_CHECK(kernels::launch_zero_lanes(params, stream));
    }
    LORA_BENCH_CUDA_CHECK(
        kernels::launch_grouped_shrink(number, params, store, tuning, vectors, stream));
    if (store.combine == Combine::kOrdered) {
      LORA_BENCH_CUDA_CHECK(kernels::launch_combine(number, params, store, tuning.split, stream));
    }
  }

  void expand(const Problem& problem, const Operands& operands, cudaStream_t stream) const {
    const kernels::ExpandParams params = expand_params(problem, operands);
    const std::int64_t element = size_bytes(problem.dtype[Role::kB]);
    const bool vectors = reads_vectors(params, element, size_bytes(problem.dtype[Role::kH]));
    LORA_BENCH_CUDA_CHECK(kernels::launch_grouped_expand(
        kernel_number(problem.dtype[Role::kB]), params, problem.dtype[Role::kH] == Dtype::kFp32,
        kernels::grouped_expand_tuning(shape_of(problem, vectors)), vectors,
        has_vector_y(params, element), stream));
  }

  std::string_view name_;
  std::string_view summary_;
  bool ordered_;
  std::int64_t multiprocessors_;
};

}  // namespace

std::unique_ptr<Backend> make_grouped_backend() {
  return std::make_unique<GroupedBackend>("grouped", kGroupedSummary, false,
                                          gpu_facts().multiprocessors);
}

std::unique_ptr<Backend> make_grouped_ordered_backend() {
  return std::make_unique<GroupedBackend>("grouped-ordered", kGroupedOrderedSummary, true,
                                          gpu_facts().multiprocessors);
}

#else

std::unique_ptr<Backend> make_grouped_backend() { throw EnvironmentError(why_no_gpu()); }
std::unique_ptr<Backend> make_grouped_ordered_backend() { throw EnvironmentError(why_no_gpu()); }

#endif
}  // namespace lora_bench
