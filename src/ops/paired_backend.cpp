#include "ops/paired_backend.h"

#include "kernels/paired/paired_tuning.h"
#ifdef LORA_BENCH_HAVE_CUDA
#include "device/cuda_check.h"
#include "kernels/paired/paired.h"
#include "kernels/tile/lanes.h"
#include "ops/kernel_params.h"
#include "ops/vectors.h"
#else
#include "core/error.h"
#endif

namespace lora_bench {

Numerics paired_numerics(const Problem& problem) {
  Numerics numerics;
  numerics.unit_roundoff = 0x1p-23;
  numerics.shrink_depth = kernels::paired_shrink_depth(problem.in_features);
  numerics.expand_depth =
      kernels::paired_expand_depth(problem.max_rank, problem.intermediate == Dtype::kFp32);
  numerics.intermediate = problem.intermediate;
  numerics.summation =
      "fp32 on tensor cores; K: 64 of every 512 a warp, eight warps in order, groups of K in "
      "order; rank: one sum, an fp32 h in three parts without loss";
  return numerics;
}

#ifdef LORA_BENCH_HAVE_CUDA
namespace {

class PairedBackend final : public Backend {
 public:
  explicit PairedBackend(const DeviceFacts& device)
      : multiprocessors_(device.multiprocessors), links_(device.compute_capability >= 90) {
    int ordinal = 0;
    LORA_BENCH_CUDA_CHECK(cudaGetDevice(&ordinal));
    LORA_BENCH_CUDA_CHECK(
        cudaDeviceGetAttribute(&shared_bytes_, cudaDevAttrMaxSharedMemoryPerBlockOptin, ordinal));
  }

  [[nodiscard]] std::string_view name() const override { return "paired"; }
  [[nodiscard]] std::string_view summary() const override { return kPairedSummary; }
  [[nodiscard]] Space space() const override { return Space::kDevice; }
  [[nodiscard]] Support supports(const Problem& problem, const DeviceFacts& device) const override {
    return tensor_cores_take(problem, device);
  }
  [[nodiscard]] Numerics numerics(const Problem& problem) const override {
    return paired_numerics(problem);
  }

  // Whether x and A can be read in vectors is known only with their addresses.
  [[nodiscard]] std::int64_t workspace_bytes(const Problem& problem) const override {
    return has_shrink(problem.op)
               ? kernels::paired_groups(problem.in_features) * operand_sizes(problem).h *
                     static_cast<std::int64_t>(sizeof(float))
               : 0;
  }

  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    if (problem.plan.active() == 0) {
      return;
    }
    const auto handle = static_cast<cudaStream_t>(stream.handle);
    kernels::PairedHidden hidden;
    if (has_shrink(problem.op)) {
      hidden = shrink(problem, operands, handle);
    }
    if (has_expand(problem.op)) {
      expand(problem, operands, hidden, handle);
    }
  }

 private:
  [[nodiscard]] kernels::PairedShape shape_of(const Problem& problem, bool vectors) const {
    kernels::PairedShape shape;
    shape.tokens = problem.tokens;
    shape.active = problem.plan.active();
    shape.slices = problem.slices();
    shape.max_rank = problem.max_rank;
    shape.in_features = problem.in_features;
    shape.multiprocessors = multiprocessors_;
    shape.shared_bytes = shared_bytes_;
    shape.vectors = vectors;
    return shape;
  }

  // Returns what expand needs to go on; where shrink is the whole op, h is made of it.
  kernels::PairedHidden shrink(const Problem& problem, const Operands& operands,
                               cudaStream_t stream) const {
    const kernels::ShrinkParams params = shrink_params(problem, operands);
    const kernels::Number number = kernel_number(problem.dtype);
    const bool vectors = reads_vectors(params, size_bytes(problem.dtype));
    const kernels::PairedShrinkTuning tuning =
        kernels::paired_shrink_tuning(shape_of(problem, vectors));
    kernels::PairedHidden hidden;
    hidden.sums = static_cast<float*>(operands.workspace);
    hidden.scale = params.scale;
    hidden.elements = operand_sizes(problem).h;
    hidden.parts = static_cast<std::int32_t>(tuning.parts);
    LORA_BENCH_CUDA_CHECK(
        kernels::launch_paired_shrink(number, params, tuning, hidden, vectors, stream));
    if (!has_expand(problem.op)) {
      kernels::ShrinkStore store;
      store.combine = kernels::Combine::kOrdered;
      store.wide = problem.intermediate == Dtype::kFp32;
      store.parts = hidden.sums;
      LORA_BENCH_CUDA_CHECK(kernels::launch_combine(number, params, store, tuning.parts, stream));
    }
    return hidden;
  }

  void expand(const Problem& problem, const Operands& operands, const kernels::PairedHidden& hidden,
              cudaStream_t stream) const {
    const kernels::ExpandParams params = expand_params(problem, operands);
    const std::int64_t element = size_bytes(problem.dtype);
    // The parts begin where the workspace does, which is aligned for any vector.
    kernels::PairedExpandAccess access;
    access.vectors = reads_vectors(params, element, size_bytes(problem.intermediate));
    access.vector_y = has_vector_y(params, element);
    access.linked = links_ && has_shrink(problem.op);
    LORA_BENCH_CUDA_CHECK(kernels::launch_paired_expand(
        kernel_number(problem.dtype), kernel_number(problem.intermediate), params,
        kernels::paired_expand_tuning(shape_of(problem, true), problem.widths.data(),
                                      size_bytes(problem.intermediate)),
        hidden, access, stream));
  }

  std::int64_t multiprocessors_;
  int shared_bytes_ = 0;
  bool links_;
};

}  // namespace

std::unique_ptr<Backend> make_paired_backend() {
  return std::make_unique<PairedBackend>(gpu_facts());
}

#else

std::unique_ptr<Backend> make_paired_backend() { throw EnvironmentError(why_no_gpu()); }

#endif
}  // namespace lora_bench
