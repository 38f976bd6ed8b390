#include "ops/backends.h"

#include <fmt/format.h>

#include <numeric>

#include "core/error.h"
#include "ops/cublaslt_library.h"
#include "ops/fused_layer.h"
#include "ops/kernel_params.h"

namespace lora_bench {
namespace {

LtShape lt_shape(const Problem& problem) {
  LtShape shape;
  shape.dtype = problem.dtype[Role::kX];
  shape.out = problem.dtype[Role::kH];
  shape.bias = problem.bias;
  shape.adds = problem.add_inputs;
  shape.rows = problem.tokens;
  shape.columns = problem.max_rank;
  shape.depth = problem.in_features;
  shape.x_stride = problem.x_stride;
  shape.w_stride = problem.a_stride > 0 ? problem.a_stride : problem.in_features;
  // A shard of the inputs begins at a multiple of what it has of a row.
  shape.x_alignment =
      std::gcd(kAlignmentBytes, problem.in_features * size_bytes(problem.dtype[Role::kX]));
  return shape;
}

// Few rows by one kernel, many by a longer product.
class FusedByRows final : public FusedLayer {
 public:
  explicit FusedByRows(const Backend& base)
      : few_(make_streamed_layer()), many_(make_continued_layer(base)) {}

  [[nodiscard]] std::string why_not(const Problem& base, const Problem& lora) const override {
    return of(lora).why_not(base, lora);
  }
  [[nodiscard]] bool is_quicker(const Problem& base, const Problem& lora) const override {
    return of(lora).is_quicker(base, lora);
  }
  [[nodiscard]] bool same_base(const Problem& base, const Problem& lora) const override {
    return of(lora).same_base(base, lora);
  }
  [[nodiscard]] std::optional<Plan> left_over(const Problem& base,
                                              const Problem& lora) const override {
    return of(lora).left_over(base, lora);
  }
  [[nodiscard]] std::int64_t base_depth(const Problem& base, const Problem& lora) const override {
    return of(lora).base_depth(base, lora);
  }
  [[nodiscard]] Numerics numerics(const Problem& base, const Problem& lora) const override {
    return of(lora).numerics(base, lora);
  }
  [[nodiscard]] std::int64_t workspace_bytes(const Problem& base,
                                             const Problem& lora) const override {
    return of(lora).workspace_bytes(base, lora);
  }
  void launch(const Problem& base, const Operands& of_base, const Problem& lora,
              const Operands& of_lora, Stream stream) const override {
    of(lora).launch(base, of_base, lora, of_lora, stream);
  }

 private:
  [[nodiscard]] const FusedLayer& of(const Problem& lora) const {
    return is_of_many_rows(lora) ? *many_ : *few_;
  }
  std::unique_ptr<FusedLayer> few_, many_;
};

class CublasLtProduct final : public Backend {
 public:
  explicit CublasLtProduct(BaseAlgorithm algorithm)
      : streams_(algorithm == BaseAlgorithm::kAuto),
        library_(algorithm),
        layer_(streams_ ? std::make_unique<FusedByRows>(*this) : nullptr) {}

  [[nodiscard]] std::string_view name() const override { return "cublaslt"; }
  [[nodiscard]] std::string_view summary() const override {
    return "base products of layers by cuBLASLt, as its heuristic chooses, and by kernels of our "
           "own";
  }
  [[nodiscard]] Space space() const override { return Space::kDevice; }
  [[nodiscard]] Support supports(const Problem& problem, const DeviceFacts&) const override {
    if (problem.op != Op::kShrink || problem.slots != 1 || problem.slices() != 1) {
      return {false, "a base product is the shrink of one adapter"};
    }
    // Seen with cuBLASLt 13.0: there the product is rounded before bias and addend come to it.
    if (problem.add_inputs &&
        problem.max_rank * size_bytes(problem.dtype[Role::kH]) % kAlignmentBytes != 0) {
      return {false,
              fmt::format("cuBLASLt rounds more than once where it adds to rows of {} columns: "
                          "multiples of {} bytes",
                          problem.max_rank, kAlignmentBytes)};
    }
    const Support ours = fast_kernels_take(problem);
    if (!ours.yes || !problem.bias || empty(problem) || streams(problem)) {
      return ours;
    }
    const std::string why_not = library_.why_not(lt_shape(problem));
    return {why_not.empty(), why_not};
  }
  [[nodiscard]] Numerics numerics(const Problem& problem) const override {
    if (streams(problem)) {
      return streamed_numerics(problem);
    }
    Numerics numerics;
    numerics.unit_roundoff = problem.dtype[Role::kX] == Dtype::kFp32 ? 0x1p-24 : 0x1p-23;
    // cuBLASLt does not tell its order: no order adds more often.
    numerics.shrink_depth = problem.in_features;
    numerics.intermediate = problem.dtype[Role::kH];
    numerics.batch_invariant = false;  // the heuristic chooses by the number of rows
    numerics.summation =
        empty(problem) ? "nothing to multiply" : library_.choose(lt_shape(problem)).text;
    return numerics;
  }
  [[nodiscard]] std::int64_t workspace_bytes(const Problem& problem) const override {
    return empty(problem) || streams(problem) ? 0
                                              : library_.choose(lt_shape(problem)).workspace_bytes;
  }
  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    if (streams(problem)) {
      launch_streamed_product(problem, operands, stream);
    } else if (!empty(problem)) {
      library_.multiply(lt_shape(problem),
                        {.x = operands.x,
                         .w = operands.a[0],
                         .bias = operands.bias[0],
                         .addend = problem.add_inputs ? operands.y : nullptr,
                         .out = operands.h,
                         .workspace = operands.workspace},
                        stream);
    }
  }

  [[nodiscard]] const FusedLayer* fused() const override { return layer_.get(); }

 private:
  static bool empty(const Problem& problem) {
    return problem.tokens == 0 || problem.max_rank == 0 || problem.in_features == 0;
  }
  [[nodiscard]] bool streams(const Problem& problem) const {
    return streams_ && streamed_takes(problem);
  }

  bool streams_;
  mutable CublasLt library_;
  std::unique_ptr<FusedLayer> layer_;
};

}  // namespace

std::unique_ptr<Backend> make_base_product(Space space, BaseAlgorithm algorithm) {
  if (space == Space::kHost) {
    return make_cpu_backend();
  }
  return std::make_unique<CublasLtProduct>(algorithm);
}

bool base_product_adds_bias(Space space) { return space == Space::kDevice; }

}  // namespace lora_bench
