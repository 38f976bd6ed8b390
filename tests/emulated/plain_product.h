#pragma once

#include <memory>
#include <vector>

#include "core/dtype.h"
#include "ops/backend.h"
#include "ops/fused_layer.h"

namespace lora_bench {

// The base product of many rows, for which a GPU has a library: one sum after the other, rounded
// once. What an emulated GPU has in its memory can be read as it lies.
class PlainProduct final : public Backend {
 public:
  [[nodiscard]] std::string_view name() const override { return "plain"; }
  [[nodiscard]] std::string_view summary() const override { return ""; }
  [[nodiscard]] Space space() const override { return Space::kDevice; }
  [[nodiscard]] Support supports(const Problem&, const DeviceFacts&) const override { return {}; }
  [[nodiscard]] Numerics numerics(const Problem& problem) const override {
    Numerics numerics;
    numerics.unit_roundoff = 0x1p-24;
    numerics.shrink_depth = problem.in_features;
    numerics.intermediate = problem.dtype[Role::kH];
    return numerics;
  }
  [[nodiscard]] std::int64_t workspace_bytes(const Problem&) const override { return 0; }
  void launch(const Problem& problem, const Operands& operands, Stream) const override {
    const std::int64_t columns = problem.max_rank;
    const std::int64_t w_stride = problem.a_stride > 0 ? problem.a_stride : problem.in_features;
    const auto rows_of = [&](const void* from, std::int64_t rows, std::int64_t stride) {
      std::vector<std::vector<float>> all(static_cast<std::size_t>(rows));
      for (std::size_t row = 0; row < all.size(); ++row) {
        all[row].resize(static_cast<std::size_t>(problem.in_features));
        decode(problem.dtype[Role::kY],
               static_cast<const std::byte*>(from) +
                   static_cast<std::int64_t>(row) * stride * size_bytes(problem.dtype[Role::kY]),
               all[row]);
      }
      return all;
    };
    const auto x = rows_of(operands.x, problem.tokens, problem.x_stride);
    const auto w = rows_of(operands.a[0], columns, w_stride);
    for (std::size_t row = 0; row < x.size(); ++row) {
      for (std::size_t column = 0; column < w.size(); ++column) {
        const auto at = static_cast<std::int64_t>(row * w.size() + column);
        float sum = 0;
        for (std::size_t k = 0; k < x[row].size(); ++k) {
          sum += x[row][k] * w[column][k];
        }
        sum += problem.bias ? load(problem.dtype[Role::kBias], operands.bias[0],
                                   static_cast<std::int64_t>(column))
                            : 0;
        sum += problem.add_inputs ? load(problem.dtype[Role::kH], operands.y, at) : 0;
        store(problem.dtype[Role::kH], operands.h, at, sum);
      }
    }
  }
  [[nodiscard]] const FusedLayer* fused() const override { return layer_.get(); }

 private:
  std::unique_ptr<FusedLayer> layer_ = make_continued_layer(*this);
};

}  // namespace lora_bench
