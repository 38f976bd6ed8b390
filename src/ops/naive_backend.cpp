#include "ops/backends.h"

#ifdef LORA_BENCH_HAVE_CUDA
#include "device/cuda_check.h"
#include "kernels/naive/naive.h"
#include "ops/idle_rows.h"
#include "ops/kernel_params.h"
#else
#include "core/error.h"
#endif

namespace lora_bench {
#ifdef LORA_BENCH_HAVE_CUDA
namespace {

kernels::NaiveStrides strides_of(const Problem& problem) {
  return {.x_column = problem.layout.x_column_stride,
          .a_lane = problem.a_pitch(),
          .a_slot = problem.lanes_together() * problem.a_pitch(),
          .b_output = problem.b_pitch(),
          .h_row = problem.h_pitch(),
          .h_slice = problem.separate() ? problem.tokens * problem.h_pitch() : problem.max_rank,
          .stacked = !problem.separate(),
          .packed = problem.packed()};
}

kernels::NaiveScales scales_of(const Problem& problem, const Operands& operands, Role weights) {
  kernels::NaiveScales scales;
  for (std::size_t slice = 0; slice < problem.widths.size() && problem.has_scaled_weights();
       ++slice) {
    const bool of_a = weights == Role::kA;
    const ScaleBlocks blocks = problem.scales_of(weights, static_cast<std::int64_t>(slice));
    scales.of_slice[slice] =
        static_cast<const float*>((of_a ? operands.a_scale : operands.b_scale)[slice]);
    scales.slot_stride[slice] = blocks.of_slot();
    scales.block_rows[slice] = blocks.rows;
    scales.block_columns = blocks.columns;
    scales.blocks_across = blocks.across;
  }
  return scales;
}

// Of an x or an h of eight bits.
kernels::NaiveRowScales scales_of_rows(const Problem& problem, const void* of_rows) {
  const ScalesOfRows scales = problem.scales_of_rows();
  return {.of_rows = static_cast<const float*>(of_rows),
          .token_stride = scales.by_token ? scales.across : 0,
          .slice_stride = problem.own_activations() ? scales.rows * scales.across : 0,
          .block_columns = scales.columns};
}

class NaiveBackend final : public Backend {
 public:
  [[nodiscard]] std::string_view name() const override { return "naive"; }
  [[nodiscard]] std::string_view summary() const override { return kNaiveSummary; }
  [[nodiscard]] Space space() const override { return Space::kDevice; }
  [[nodiscard]] Support supports(const Problem& problem, const DeviceFacts&) const override {
    return kernels_take(problem);
  }

  [[nodiscard]] Numerics numerics(const Problem& problem) const override {
    Numerics numerics;
    numerics.shrink_depth =
        kernels::naive_shrink_depth(problem.in_features) + (problem.adds_to_h() ? 1 : 0);
    numerics.expand_depth = kernels::naive_expand_depth(problem.max_rank);
    numerics.intermediate = problem.kept_h();
    // Grids follow tokens and limits; ids, ranks and scales are read by the kernels.
    numerics.replays_other_batches = true;
    numerics.summation =
        "fp32; shrink: 32 strided sums and a tree of five; expand: one sum over the rank";
    return numerics;
  }

  [[nodiscard]] std::int64_t workspace_bytes(const Problem&) const override { return 0; }

  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    enqueue_zero_idle_rows(problem, operands, stream);
    const auto handle = static_cast<cudaStream_t>(stream.handle);
    if (has_shrink(problem.op)) {
      LORA_BENCH_CUDA_CHECK(shrink(problem, operands, handle));
    }
    if (problem.h_quantiser) {
      LORA_BENCH_CUDA_CHECK(quantise_h(problem, operands, handle));
    }
    if (has_expand(problem.op)) {
      LORA_BENCH_CUDA_CHECK(expand(problem, operands, handle));
    }
  }

 private:
  static kernels::NaiveNumbers numbers(const Problem& problem, Role rows, Role weights) {
    return {kernel_number(problem.dtype[rows]), weight_number(problem.dtype[weights]),
            kernel_number(problem.dtype[Role::kH])};
  }

  static cudaError_t shrink(const Problem& problem, const Operands& operands, cudaStream_t stream) {
    const kernels::NaiveTuning tuning =
        kernels::naive_shrink_tuning(problem.tokens, problem.slices(), problem.max_rank);
    const kernels::ShrinkParams params = shrink_params(problem, operands);
    const kernels::NaiveScales of_a = scales_of(problem, operands, Role::kA);
    if (problem.has_scaled_x()) {
      return kernels::launch_naive_shrink_eight_bits(
          weight_number(problem.dtype[Role::kX]), weight_number(problem.dtype[Role::kA]),
          kernel_number(problem.dtype[Role::kH]), params, strides_of(problem), of_a,
          scales_of_rows(problem, operands.x_scale), tuning, stream);
    }
    return kernels::launch_naive_shrink(numbers(problem, Role::kX, Role::kA), params,
                                        strides_of(problem), of_a, tuning, stream);
  }

  static cudaError_t quantise_h(const Problem& problem, const Operands& operands,
                                cudaStream_t stream) {
    const QuantiserRule& rule = problem.h_quantiser->rule;
    kernels::QuantiseParams params;
    params.group = problem.h_quantiser->group;
    params.least_amax = rule.least_amax;
    params.least_scale = rule.least_scale;
    params.multiplies = rule.convert == Convert::kMultiply;
    params.power_of_two = rule.power_of_two;
    return kernels::launch_naive_quantise_h(
        rule.to == Dtype::kE5m2, shrink_params(problem, operands), strides_of(problem), params,
        kernels::naive_shrink_tuning(problem.tokens, problem.slices(), problem.max_rank), stream);
  }

  static cudaError_t expand(const Problem& problem, const Operands& operands, cudaStream_t stream) {
    const kernels::ExpandParams params = expand_params(problem, operands);
    const kernels::NaiveScales of_b = scales_of(problem, operands, Role::kB);
    const kernels::NaiveTuning tuning =
        kernels::naive_expand_tuning(problem.tokens, params.columns);
    if (problem.has_scaled_h()) {
      return kernels::launch_naive_expand_eight_bits(
          kernel_number(problem.dtype[Role::kY]), weight_number(problem.dtype[Role::kB]),
          weight_number(problem.dtype[Role::kH]), params, strides_of(problem), of_b,
          scales_of_rows(problem, operands.h_scale), tuning, stream);
    }
    return kernels::launch_naive_expand(numbers(problem, Role::kY, Role::kB), params,
                                        strides_of(problem), of_b, tuning, stream);
  }
};

}  // namespace

std::unique_ptr<Backend> make_naive_backend() { return std::make_unique<NaiveBackend>(); }

#else

std::unique_ptr<Backend> make_naive_backend() { throw EnvironmentError(why_no_gpu()); }

#endif
}  // namespace lora_bench
