#include "ops/backends.h"

#ifdef LORA_BENCH_HAVE_CUDA
#include "device/cuda_check.h"
#include "kernels/chunked/chunked.h"
#include "kernels/tile/tile_tuning.h"
#include "ops/idle_rows.h"
#include "ops/kernel_params.h"
#else
#include "core/error.h"
#endif

namespace lora_bench {
#ifdef LORA_BENCH_HAVE_CUDA
namespace {

kernels::ChunkedShape shape_of(const Problem& problem, bool vectors) {
  kernels::ChunkedShape shape;
  shape.rows = problem.plan.rows_with_adapter();
  shape.active = launched_groups(problem);
  shape.chunk = problem.chunk;
  shape.slices = problem.slices();
  shape.max_rank = problem.max_rank;
  shape.widths = problem.widths;
  shape.vectors = vectors;
  return shape;
}

class ChunkedBackend final : public Backend {
 public:
  [[nodiscard]] std::string_view name() const override { return "chunked"; }
  [[nodiscard]] std::string_view summary() const override { return kChunkedSummary; }
  [[nodiscard]] Space space() const override { return Space::kDevice; }
  [[nodiscard]] Support supports(const Problem& problem, const DeviceFacts& device) const override {
    return tensor_cores_take(problem, device, Semantics(Semantic::kChunkedForm));
  }

  [[nodiscard]] Numerics numerics(const Problem& problem) const override {
    Numerics numerics;
    numerics.unit_roundoff = 0x1p-23;
    numerics.shrink_depth = kernels::tile_shrink_depth(problem.in_features, 1);
    numerics.expand_depth =
        kernels::tile_expand_depth(problem.max_rank, problem.dtype[Role::kH] == Dtype::kFp32);
    numerics.intermediate = problem.dtype[Role::kH];
    numerics.batch_invariant = !has_shrink(problem.op);  // larger chunks share K among fewer warps
    numerics.replays_other_batches = serves_any_batch(problem);
    numerics.summation =
        "fp32 on tensor cores; shrink: warps share K, one sum each, added in order; expand: one "
        "sum over the rank, an fp32 h as three bf16 terms";
    return numerics;
  }

  [[nodiscard]] std::int64_t workspace_bytes(const Problem&) const override { return 0; }

  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    enqueue_zero_idle_rows(problem, operands, stream);
    const kernels::Number number = kernel_number(problem.dtype[Role::kX]);
    const bool wide = problem.dtype[Role::kH] == Dtype::kFp32;
    const std::int64_t element = size_bytes(problem.dtype[Role::kX]);
    const auto handle = static_cast<cudaStream_t>(stream.handle);
    if (has_shrink(problem.op)) {
      const kernels::ShrinkParams params = shrink_params(problem, operands);
      const bool vectors = reads_vectors(params, element);
      LORA_BENCH_CUDA_CHECK(kernels::launch_chunked_shrink(
          number, params, wide, kernels::chunked_shrink_tuning(shape_of(problem, vectors)), vectors,
          handle));
    }
    if (has_expand(problem.op)) {
      const kernels::ExpandParams params = expand_params(problem, operands);
      const bool vectors = reads_vectors(params, element, size_bytes(problem.dtype[Role::kH]));
      LORA_BENCH_CUDA_CHECK(kernels::launch_chunked_expand(
          number, params, wide, kernels::chunked_expand_tuning(shape_of(problem, vectors)), vectors,
          has_vector_y(params, element), handle));
    }
  }
};

}  // namespace

std::unique_ptr<Backend> make_chunked_backend() { return std::make_unique<ChunkedBackend>(); }

#else

std::unique_ptr<Backend> make_chunked_backend() { throw EnvironmentError(why_no_gpu()); }

#endif
}  // namespace lora_bench
