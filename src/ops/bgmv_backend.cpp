#include "ops/backends.h"

#include "kernels/bgmv/bgmv_tuning.h"
#ifdef LORA_BENCH_HAVE_CUDA
#include "device/cuda_check.h"
#include "kernels/bgmv/bgmv.h"
#include "ops/idle_rows.h"
#include "ops/kernel_params.h"
#else
#include "core/error.h"
#endif

namespace lora_bench {
namespace {

kernels::BgmvShape shape_of(const Problem& problem) {
  kernels::BgmvShape shape;
  shape.tokens = problem.tokens;
  shape.rows = problem.plan.rows_with_adapter();
  shape.active = problem.plan.active();
  shape.slices = problem.slices();
  shape.max_rank = problem.max_rank;
  return shape;
}

}  // namespace

Numerics bgmv_numerics(const Problem& problem) {
  const kernels::BgmvShape shape = shape_of(problem);
  const kernels::BgmvForm form = kernels::bgmv_form(shape.rows, shape.active);
  const bool segments = form == kernels::BgmvForm::kSegments;
  Numerics numerics;
  numerics.unit_roundoff = segments ? 0x1p-23 : 0x1p-24;
  numerics.shrink_depth = kernels::bgmv_shrink_depth(form, problem.in_features);
  numerics.expand_depth =
      kernels::bgmv_expand_depth(form, problem.max_rank, problem.dtype[Role::kH] == Dtype::kFp32);
  numerics.intermediate = problem.dtype[Role::kH];
  numerics.batch_invariant = false;  // rows per adapter choose the form
  // One row a block reads nothing else of the plan; segments are counted when they are launched,
  // and a batch without adapters launches nothing.
  numerics.replays_other_batches = !segments && shape.active > 0;
  numerics.summation =
      segments ? "SGMV on tensor cores, fp32; K: eight strided sums and a tree of three; an fp32 h "
                 "in three parts, without loss"
               : "BGMV, fp32; K: 128 strided sums, a tree of five, four warps; rank: up to 32 sums "
                 "and a tree";
  return numerics;
}

#ifdef LORA_BENCH_HAVE_CUDA
namespace {

class BgmvBackend final : public Backend {
 public:
  [[nodiscard]] std::string_view name() const override { return "bgmv"; }
  [[nodiscard]] std::string_view summary() const override { return kBgmvSummary; }
  [[nodiscard]] Space space() const override { return Space::kDevice; }
  [[nodiscard]] Support supports(const Problem& problem, const DeviceFacts& device) const override {
    return tensor_cores_take(problem, device);
  }
  [[nodiscard]] Numerics numerics(const Problem& problem) const override {
    return bgmv_numerics(problem);
  }
  [[nodiscard]] std::int64_t workspace_bytes(const Problem&) const override { return 0; }

  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    enqueue_zero_idle_rows(problem, operands, stream);
    if (problem.plan.active() == 0) {
      return;
    }
    const kernels::Number number = kernel_number(problem.dtype[Role::kX]);
    const kernels::Number intermediate = kernel_number(problem.dtype[Role::kH]);
    const kernels::BgmvShape shape = shape_of(problem);
    const auto handle = static_cast<cudaStream_t>(stream.handle);
    if (has_shrink(problem.op)) {
      const kernels::ShrinkParams params = shrink_params(problem, operands);
      LORA_BENCH_CUDA_CHECK(kernels::launch_bgmv_shrink(
          number, intermediate, params, kernels::bgmv_shrink_tuning(shape),
          reads_vectors(params, size_bytes(problem.dtype[Role::kX])), handle));
    }
    if (has_expand(problem.op)) {
      const kernels::ExpandParams params = expand_params(problem, operands);
      LORA_BENCH_CUDA_CHECK(kernels::launch_bgmv_expand(
          number, intermediate, params, kernels::bgmv_expand_tuning(shape, problem.widths.data()),
          reads_vectors(params, size_bytes(problem.dtype[Role::kB]),
                        size_bytes(problem.dtype[Role::kH])),
          handle));
    }
  }
};

}  // namespace

std::unique_ptr<Backend> make_bgmv_backend() { return std::make_unique<BgmvBackend>(); }

#else

std::unique_ptr<Backend> make_bgmv_backend() { throw EnvironmentError(why_no_gpu()); }

#endif
}  // namespace lora_bench
