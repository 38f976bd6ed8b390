#include "ops/backends.h"

#include <algorithm>

#include "kernels/panel/panel_tuning.h"
#ifdef LORA_BENCH_HAVE_CUDA
#include "device/cuda_check.h"
#include "kernels/panel/panel.h"
#include "ops/auto_choice.h"
#include "ops/idle_rows.h"
#include "ops/kernel_params.h"
#else
#include "core/error.h"
#endif

namespace lora_bench {

Numerics panel_numerics(const Problem& problem) {
  Numerics numerics;
  numerics.unit_roundoff = 0x1p-23;
  numerics.shrink_depth = kernels::chains_shrink_depth(problem.in_features);
  numerics.expand_depth =
      kernels::chains_expand_depth(problem.max_rank, problem.dtype[Role::kH] == Dtype::kFp32);
  numerics.intermediate = problem.dtype[Role::kH];
  // Grids follow the limits, and all else is read when the kernels run.
  numerics.replays_other_batches =
      problem.max_active >= std::min(problem.slots, problem.tokens) && problem.max_active > 0;
  numerics.summation =
      "fp32 on tensor cores; K: eight chains of a multiple of 32, added in pairs; rank: one sum, "
      "an "
      "fp32 h in three parts without loss";
  return numerics;
}

#ifdef LORA_BENCH_HAVE_CUDA
namespace {

class PanelBackend final : public Backend {
 public:
  PanelBackend(const AutoDevice& device, bool tuned) : device_(device), tuned_(tuned) {}

  [[nodiscard]] std::string_view name() const override { return "panel"; }
  [[nodiscard]] std::string_view summary() const override { return kPanelSummary; }
  [[nodiscard]] Space space() const override { return Space::kDevice; }
  [[nodiscard]] Support supports(const Problem& problem, const DeviceFacts& device) const override {
    return tensor_cores_take(problem, device, Semantics(Semantic::kSharedX, Semantic::kRowFactors));
  }
  [[nodiscard]] Numerics numerics(const Problem& problem) const override {
    return panel_numerics(problem);
  }

  // Whether rows can be read in vectors is known only with their addresses; the plain kernels need
  // one part.
  [[nodiscard]] std::int64_t workspace_bytes(const Problem& problem) const override {
    return auto_workspace_bytes(device_, problem, tuning_of(problem));
  }

  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    enqueue_zero_idle_rows(problem, operands, stream);
    if (problem.groups() == 0) {
      return;
    }
    const auto handle = static_cast<cudaStream_t>(stream.handle);
    kernels::PanelSums sums;
    if (has_shrink(problem.op)) {
      sums = shrink(problem, operands, handle);
    }
    if (has_expand(problem.op)) {
      expand(problem, operands, sums, handle);
    } else {
      LORA_BENCH_CUDA_CHECK(kernels::launch_panel_hidden(
          kernel_number(problem.dtype[Role::kH]), shrink_params(problem, operands), sums, handle));
    }
  }

 private:
  [[nodiscard]] const Tuning& tuning_of(const Problem& problem) const {
    static const Tuning kNone;
    return tuned_ ? problem.tuning : kNone;
  }

  kernels::PanelSums shrink(const Problem& problem, const Operands& operands,
                            cudaStream_t stream) const {
    const kernels::ShrinkParams params = shrink_params(problem, operands);
    const kernels::PanelShrinkTuning tuning =
        auto_shrink_tuning(device_, problem, tuning_of(problem),
                           reads_vectors(params, size_bytes(problem.dtype[Role::kX])));
    kernels::PanelSums sums;
    sums.sums = static_cast<float*>(operands.workspace);
    sums.scale = params.scale;
    sums.elements =
        kernels::panel_part_elements(problem.slices(), problem.tokens, problem.max_rank);
    sums.parts = kernels::panel_parts(tuning.levels);
    const kernels::Number number = kernel_number(problem.dtype[Role::kX]);
    LORA_BENCH_CUDA_CHECK(
        problem.has_scaled_weights()
            ? kernels::launch_panel_shrink_eight(number, params, tuning, sums,
                                                 weight_scales(problem, operands).e5m2, stream)
            : kernels::launch_panel_shrink(number, params, tuning, sums, stream));
    return sums;
  }

  void expand(const Problem& problem, const Operands& operands, const kernels::PanelSums& sums,
              cudaStream_t stream) const {
    const kernels::ExpandParams params = expand_params(problem, operands);
    const bool vectors = expands_in_vectors(params, size_bytes(problem.dtype_of_cast()));
    const kernels::Number number = kernel_number(problem.dtype_of_cast());
    const kernels::PanelExpandTuning tuning =
        auto_expand_tuning(device_, problem, tuning_of(problem), vectors);
    LORA_BENCH_CUDA_CHECK(
        problem.has_scaled_weights()
            ? kernels::launch_panel_expand_eight(number, params, weight_scales(problem, operands),
                                                 tuning, sums, has_shrink(problem.op), stream)
            : kernels::launch_panel_expand(number, kernel_number(problem.dtype[Role::kH]), params,
                                           tuning, sums, has_shrink(problem.op), stream));
  }

  AutoDevice device_;
  bool tuned_;  // by problem.tuning
};

}  // namespace

std::unique_ptr<Backend> make_panel_backend() {
  return std::make_unique<PanelBackend>(auto_device(gpu_facts()), false);
}

std::unique_ptr<Backend> make_tuned_panel_backend() {
  return std::make_unique<PanelBackend>(auto_device(gpu_facts()), true);
}

#else

std::unique_ptr<Backend> make_panel_backend() { throw EnvironmentError(why_no_gpu()); }

std::unique_ptr<Backend> make_tuned_panel_backend() { throw EnvironmentError(why_no_gpu()); }

#endif
}  // namespace lora_bench
