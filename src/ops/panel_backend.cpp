#include "ops/panel_backend.h"

#include "kernels/panel/panel_tuning.h"
#ifdef LORA_BENCH_HAVE_CUDA
#include "device/cuda_check.h"
#include "kernels/panel/panel.h"
#include "ops/kernel_params.h"
#include "ops/vectors.h"
#else
#include "core/error.h"
#endif

namespace lora_bench {

Numerics panel_numerics(const Problem& problem) {
  Numerics numerics;
  numerics.unit_roundoff = 0x1p-23;
  numerics.shrink_depth = kernels::chains_shrink_depth(problem.in_features);
  numerics.expand_depth =
      kernels::chains_expand_depth(problem.max_rank, problem.intermediate == Dtype::kFp32);
  numerics.intermediate = problem.intermediate;
  numerics.summation =
      "fp32 on tensor cores; K: eight chains of a multiple of 32, in order; rank: one sum, an fp32 "
      "h in three parts without loss";
  return numerics;
}

#ifdef LORA_BENCH_HAVE_CUDA
namespace {

class PanelBackend final : public Backend {
 public:
  explicit PanelBackend(const DeviceFacts& device) : multiprocessors_(device.multiprocessors) {
    int ordinal = 0;
    LORA_BENCH_CUDA_CHECK(cudaGetDevice(&ordinal));
    LORA_BENCH_CUDA_CHECK(
        cudaDeviceGetAttribute(&shared_bytes_, cudaDevAttrMaxSharedMemoryPerBlockOptin, ordinal));
    LORA_BENCH_CUDA_CHECK(cudaDeviceGetAttribute(
        &multiprocessor_bytes_, cudaDevAttrMaxSharedMemoryPerMultiprocessor, ordinal));
  }

  [[nodiscard]] std::string_view name() const override { return "panel"; }
  [[nodiscard]] std::string_view summary() const override { return kPanelSummary; }
  [[nodiscard]] Space space() const override { return Space::kDevice; }
  [[nodiscard]] Support supports(const Problem& problem, const DeviceFacts& device) const override {
    return tensor_cores_take(problem, device);
  }
  [[nodiscard]] Numerics numerics(const Problem& problem) const override {
    return panel_numerics(problem);
  }

  // Whether rows can be read in vectors is known only with their addresses; the plain kernels need
  // one part.
  [[nodiscard]] std::int64_t workspace_bytes(const Problem& problem) const override {
    return has_shrink(problem.op) && problem.plan.active() > 0
               ? kernels::panel_workspace_elements(shape_of(problem, true)) *
                     static_cast<std::int64_t>(sizeof(float))
               : 0;
  }

  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    if (problem.plan.active() == 0) {
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
          kernel_number(problem.intermediate), shrink_params(problem, operands), sums, handle));
    }
  }

 private:
  [[nodiscard]] kernels::PanelShape shape_of(const Problem& problem, bool vectors) const {
    kernels::PanelShape shape;
    shape.tokens = problem.tokens;
    shape.active = problem.plan.active();
    shape.slices = problem.slices();
    shape.max_rank = problem.max_rank;
    shape.in_features = problem.in_features;
    shape.multiprocessors = multiprocessors_;
    shape.shared_bytes = shared_bytes_;
    shape.multiprocessor_bytes = multiprocessor_bytes_;
    shape.vectors = vectors;
    return shape;
  }

  kernels::PanelSums shrink(const Problem& problem, const Operands& operands,
                            cudaStream_t stream) const {
    const kernels::ShrinkParams params = shrink_params(problem, operands);
    const kernels::PanelShrinkTuning tuning = kernels::panel_shrink_tuning(
        shape_of(problem, reads_vectors(params, size_bytes(problem.dtype))));
    kernels::PanelSums sums;
    sums.sums = static_cast<float*>(operands.workspace);
    sums.scale = params.scale;
    sums.elements =
        kernels::panel_part_elements(problem.slices(), problem.tokens, problem.max_rank);
    sums.parts = kernels::panel_parts(tuning.split);
    LORA_BENCH_CUDA_CHECK(
        kernels::launch_panel_shrink(kernel_number(problem.dtype), params, tuning, sums, stream));
    return sums;
  }

  void expand(const Problem& problem, const Operands& operands, const kernels::PanelSums& sums,
              cudaStream_t stream) const {
    const kernels::ExpandParams params = expand_params(problem, operands);
    const std::int64_t element = size_bytes(problem.dtype);
    const bool vectors = reads_vectors(params, element, size_bytes(problem.intermediate)) &&
                         has_vector_y(params, element) && reads_bias_in_vectors(params);
    LORA_BENCH_CUDA_CHECK(kernels::launch_panel_expand(
        kernel_number(problem.dtype), kernel_number(problem.intermediate), params,
        kernels::panel_expand_tuning(shape_of(problem, vectors), problem.widths.data()), sums,
        has_shrink(problem.op), stream));
  }

  // Its rows are as long as slices are wide, which y has in whole vectors.
  static bool reads_bias_in_vectors(const kernels::ExpandParams& params) {
    bool all = true;
    for (int slice = 0; slice < params.slices; ++slice) {
      all = all && reinterpret_cast<std::uintptr_t>(params.bias[slice]) % 16 == 0;
    }
    return all;
  }

  std::int64_t multiprocessors_;
  int shared_bytes_ = 0;
  int multiprocessor_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Backend> make_panel_backend() {
  return std::make_unique<PanelBackend>(gpu_facts());
}

#else

std::unique_ptr<Backend> make_panel_backend() { throw EnvironmentError(why_no_gpu()); }

#endif
}  // namespace lora_bench
