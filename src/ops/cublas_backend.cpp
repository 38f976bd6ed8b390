#include "ops/cublas_backend.h"

#include <algorithm>

#include "ops/cublas_library.h"
#ifdef LORA_BENCH_HAVE_CUDA
#include <mutex>

#include "device/cuda_check.h"
#include "kernels/gather/gather.h"
#include "ops/idle_rows.h"
#include "ops/kernel_params.h"
#else
#include "core/error.h"
#endif

namespace lora_bench {
namespace {

constexpr std::int64_t kFp32Bytes = 4;

// The next multiple.
std::int64_t padded(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

// fp32 h and 16-bit weights: no product of cuBLAS takes both, and h may not be narrowed.
bool widens_b(const Problem& problem) {
  return problem.dtype[Role::kH] == Dtype::kFp32 && problem.dtype[Role::kB] != Dtype::kFp32;
}

// Whether the rows that have an adapter come first, those of one adapter together.
bool rows_lie_by_adapter(const Plan& plan) {
  const std::int64_t rows = plan.rows_with_adapter();
  const auto end = plan.token_order.begin() + rows;
  return rows > 0 && std::is_sorted(plan.token_order.begin(), end) && *(end - 1) == rows - 1;
}

}  // namespace

CublasWorkspace cublas_workspace(const Problem& problem) {
  const bool shrink = has_shrink(problem.op);
  const bool expand = has_expand(problem.op);
  const bool narrow_h = problem.dtype[Role::kH] != Dtype::kFp32;
  CublasWorkspace workspace;
  workspace.rows = problem.plan.rows_with_adapter();
  workspace.x_in_place = rows_lie_by_adapter(problem.plan);
  workspace.x_stride = workspace.x_in_place ? problem.x_stride : padded(problem.in_features, 8);
  workspace.h_stride = padded(problem.max_rank, 8);
  std::int64_t widest = 0;
  for (const std::int64_t width : problem.widths) {
    workspace.columns += width;
    widest = std::max(widest, width);
  }
  std::int64_t end = Cublas::kWorkspaceBytes;
  const auto take = [&](bool needed, std::int64_t bytes) {
    const std::int64_t begin = end;
    end += needed ? padded(bytes, kAlignmentBytes) : 0;
    return begin;
  };
  const std::int64_t h_elements = problem.slices() * workspace.rows * workspace.h_stride;
  workspace.x = take(shrink && !workspace.x_in_place,
                     workspace.rows * workspace.x_stride * size_bytes(problem.dtype[Role::kX]));
  workspace.h = take(shrink || !narrow_h, h_elements * kFp32Bytes);
  workspace.narrow_h = take(expand && narrow_h, h_elements * size_bytes(problem.dtype[Role::kH]));
  workspace.wide_b = take(expand && widens_b(problem), widest * workspace.h_stride * kFp32Bytes);
  workspace.delta = take(expand, workspace.rows * workspace.columns * kFp32Bytes);
  workspace.bytes = workspace.rows == 0 ? 0 : end;
  return workspace;
}

Numerics cublas_numerics(const Problem& problem) {
  constexpr std::int64_t kBiasAndY = 2;
  Numerics numerics;
  numerics.unit_roundoff = problem.dtype[Role::kX] == Dtype::kFp32 ? 0x1p-24 : 0x1p-23;
  // cuBLAS does not tell its order: no order adds more often.
  numerics.shrink_depth = problem.in_features;
  numerics.expand_depth = problem.max_rank + kBiasAndY;
  numerics.intermediate = problem.dtype[Role::kH];
  numerics.batch_invariant = false;  // cuBLAS chooses by the number of rows
  numerics.summation =
      "cuBLAS, fp32 sums in an order of its own, one cublasGemmEx for each active adapter and "
      "slice; "
      "an fp32 h with weights widened to fp32";
  return numerics;
}

#ifdef LORA_BENCH_HAVE_CUDA
namespace {

class CublasBackend final : public Backend {
 public:
  [[nodiscard]] std::string_view name() const override { return "cublas"; }
  [[nodiscard]] std::string_view summary() const override { return kCublasSummary; }
  [[nodiscard]] Space space() const override { return Space::kDevice; }
  [[nodiscard]] Support supports(const Problem& problem, const DeviceFacts&) const override {
    return fast_kernels_take(problem);
  }
  [[nodiscard]] Numerics numerics(const Problem& problem) const override {
    return cublas_numerics(problem);
  }
  [[nodiscard]] std::int64_t workspace_bytes(const Problem& problem) const override {
    return cublas_workspace(problem).bytes;
  }

  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    enqueue_zero_idle_rows(problem, operands, stream);
    const Step step{problem, operands, cublas_workspace(problem),
                    static_cast<cudaStream_t>(stream.handle)};
    if (step.workspace.rows == 0) {
      return;
    }
    const std::lock_guard one_launch(mutex_);
    library_.use(stream, operands.workspace);
    if (has_shrink(problem.op)) {
      shrink(step);
    }
    if (has_expand(problem.op)) {
      expand(step);
    }
  }

 private:
  // One launch and its workspace.
  struct Step {
    const Problem& problem;
    const Operands& operands;
    CublasWorkspace workspace;
    cudaStream_t stream = nullptr;

    [[nodiscard]] char* at(std::int64_t offset) const {
      return static_cast<char*>(operands.workspace) + offset;
    }
    [[nodiscard]] kernels::Gathered gathered(std::int64_t offset, std::int64_t stride) const {
      return {at(offset), workspace.rows, stride};
    }
    // Element (slice, row, 0) of a gathered h.
    [[nodiscard]] char* hidden(std::int64_t offset, std::size_t slice, std::int64_t row,
                               std::int64_t bytes) const {
      const auto index = static_cast<std::int64_t>(slice) * workspace.rows + row;
      return at(offset) + index * workspace.h_stride * bytes;
    }
  };

  // The rows of one adapter that has a rank, and a slice that has columns.
  struct Product {
    std::int64_t adapter = 0, rank = 0, first_row = 0, rows = 0;
    std::size_t slice = 0;
    std::int64_t first_column = 0;  // of the slice, without offset_start
  };

  template <typename Multiply>
  static void for_each_product(const Problem& problem, Multiply multiply) {
    const Plan& plan = problem.plan;
    for (std::size_t group = 0; group < plan.active_ids.size(); ++group) {
      Product product;
      product.adapter = plan.active_ids[group];
      product.rank = problem.rank[static_cast<std::size_t>(product.adapter)];
      product.first_row = plan.group_starts[group];
      product.rows = plan.group_starts[group + 1] - product.first_row;
      for (product.slice = 0; product.slice < problem.widths.size(); ++product.slice) {
        const std::int64_t width = problem.widths[product.slice];
        if (product.rank > 0 && product.rows > 0 && width > 0) {
          multiply(product);
        }
        product.first_column += width;
      }
    }
  }

  void shrink(const Step& step) const {
    const Problem& problem = step.problem;
    const CublasWorkspace& workspace = step.workspace;
    const kernels::ShrinkParams params = shrink_params(problem, step.operands);
    const std::int64_t bytes = size_bytes(problem.dtype[Role::kX]);
    const auto* x = static_cast<const char*>(step.operands.x);
    if (!workspace.x_in_place) {
      x = step.at(workspace.x);
      LORA_BENCH_CUDA_CHECK(kernels::launch_gather_x(kernel_number(problem.dtype[Role::kX]), params,
                                                     step.gathered(workspace.x, workspace.x_stride),
                                                     step.stream));
    }
    for_each_product(problem, [&](const Product& product) {
      const auto* a = static_cast<const char*>(step.operands.a[product.slice]);
      library_.multiply({problem.dtype[Role::kX],
                         x + product.first_row * workspace.x_stride * bytes,
                         a + product.adapter * problem.max_rank * problem.in_features * bytes,
                         reinterpret_cast<float*>(step.hidden(workspace.h, product.slice,
                                                              product.first_row, kFp32Bytes)),
                         workspace.x_stride, problem.in_features, workspace.h_stride, product.rows,
                         product.rank, problem.in_features});
    });
    const std::int64_t finished =
        problem.dtype[Role::kH] == Dtype::kFp32 ? workspace.h : workspace.narrow_h;
    const kernels::Gathered to =
        has_expand(problem.op) ? step.gathered(finished, workspace.h_stride) : kernels::Gathered{};
    LORA_BENCH_CUDA_CHECK(kernels::launch_finish_h(kernel_number(problem.dtype[Role::kH]), params,
                                                   step.gathered(workspace.h, workspace.h_stride),
                                                   to, step.stream));
  }

  void expand(const Step& step) const {
    const Problem& problem = step.problem;
    const CublasWorkspace& workspace = step.workspace;
    const kernels::ExpandParams params = expand_params(problem, step.operands);
    const std::int64_t h_bytes = size_bytes(problem.dtype[Role::kH]);
    const std::int64_t h =
        problem.dtype[Role::kH] == Dtype::kFp32 ? workspace.h : workspace.narrow_h;
    if (!has_shrink(problem.op)) {
      LORA_BENCH_CUDA_CHECK(kernels::launch_gather_h(kernel_number(problem.dtype[Role::kH]), params,
                                                     step.gathered(h, workspace.h_stride),
                                                     step.stream));
    }
    for_each_product(problem, [&](const Product& product) {
      const Weights b = weights(step, product);
      auto* delta = reinterpret_cast<float*>(step.at(workspace.delta));
      library_.multiply({b.dtype, step.hidden(h, product.slice, product.first_row, h_bytes), b.data,
                         delta + product.first_row * workspace.columns + product.first_column,
                         workspace.h_stride, b.stride, workspace.columns, product.rows,
                         problem.widths[product.slice], product.rank});
    });
    LORA_BENCH_CUDA_CHECK(
        kernels::launch_scatter_y(kernel_number(problem.dtype[Role::kY]), params,
                                  step.gathered(workspace.delta, workspace.columns), step.stream));
  }

  struct Weights {
    Dtype dtype = Dtype::kBf16;
    const void* data = nullptr;
    std::int64_t stride = 0;
  };

  // B of one adapter and slice, in the dtype of h.
  static Weights weights(const Step& step, const Product& product) {
    const Problem& problem = step.problem;
    const std::int64_t width = problem.widths[product.slice];
    const void* b =
        static_cast<const char*>(step.operands.b[product.slice]) +
        product.adapter * width * problem.max_rank * size_bytes(problem.dtype[Role::kB]);
    if (!widens_b(problem)) {
      return {problem.dtype[Role::kB], b, problem.max_rank};
    }
    auto* wide = reinterpret_cast<float*>(step.at(step.workspace.wide_b));
    LORA_BENCH_CUDA_CHECK(kernels::launch_widen(kernel_number(problem.dtype[Role::kB]), b,
                                                problem.max_rank, wide, step.workspace.h_stride,
                                                width, product.rank, step.stream));
    return {Dtype::kFp32, wide, step.workspace.h_stride};
  }

  mutable std::mutex mutex_;  // of the handle's stream and workspace
  mutable Cublas library_;
};

}  // namespace

std::unique_ptr<Backend> make_cublas_backend() { return std::make_unique<CublasBackend>(); }

#else

std::unique_ptr<Backend> make_cublas_backend() { throw EnvironmentError(why_no_gpu()); }

#endif
}  // namespace lora_bench
