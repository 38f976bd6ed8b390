#pragma once

#include <cmath>
#include <functional>

#include "core/dtype.h"
#include "ops/backend.h"

// The plainest correct backend: fp32 sums in order, one row after the other. A test may break it in
// one way, to see the verifier find that out.
class PlainBackend : public lora_bench::Backend {
 public:
  struct Faults {
    bool loses_last_k = false;
    bool bf16_partials = false;  // the sum over K is cut in two, the halves stored in bf16
    bool bf16_sum = false;       // the sum over K is stored in bf16 once
    bool rounds_delta = false;   // to the output dtype before it is added
    bool bf16_hidden = false;    // h is rounded to bf16 and nobody said so
    std::int64_t token_with_wrong_adapter = -1;
    std::int64_t token_without_delta = -1;
    bool writes_nan = false;  // last owned element of y
    bool writes_rows_without_adapter = false;
    bool writes_past_y = false;
    bool changes_x = false;
    bool reads_padding_lane = false;
    bool ignores_scale = false;
    // After everything else; sees the operands.
    std::function<void(const lora_bench::Problem&, const lora_bench::Operands&)> then = {};
  };

  PlainBackend() = default;
  explicit PlainBackend(Faults faults) : faults_(std::move(faults)) {}

  std::string_view name() const override { return "plain"; }
  std::string_view summary() const override { return "fp32 sums in order"; }
  lora_bench::Space space() const override { return lora_bench::Space::kHost; }
  lora_bench::Support supports(const lora_bench::Problem&,
                               const lora_bench::DeviceFacts&) const override {
    return {};
  }
  lora_bench::Numerics numerics(const lora_bench::Problem& problem) const override {
    lora_bench::Numerics numerics;
    numerics.shrink_depth = problem.in_features;
    numerics.expand_depth = problem.max_rank + 2;
    numerics.intermediate = problem.dtype[lora_bench::Role::kH];
    return numerics;
  }
  std::int64_t workspace_bytes(const lora_bench::Problem&) const override { return 64; }

  void launch(const lora_bench::Problem& problem, const lora_bench::Operands& operands,
              lora_bench::Stream) const override {
    for (std::int64_t token = 0; token < problem.tokens; ++token) {
      const std::int32_t adapter = operands.adapter_of_token[token];
      if (adapter < 0 || operands.rank[adapter] == 0) {
        if (faults_.writes_rows_without_adapter && operands.y != nullptr) {
          lora_bench::store(problem.dtype[lora_bench::Role::kY], operands.y,
                            token * problem.y_stride, 0.375F);
        }
        continue;
      }
      row(problem, operands, token,
          token == faults_.token_with_wrong_adapter
              ? (adapter + 1) % static_cast<std::int32_t>(problem.slots)
              : adapter);
    }
    if (faults_.writes_past_y) {
      const std::int64_t past = problem.tokens * problem.y_stride;
      lora_bench::store(problem.dtype[lora_bench::Role::kY], operands.y, past, 1);
    }
    if (faults_.changes_x) {
      lora_bench::store(problem.dtype[lora_bench::Role::kX], const_cast<void*>(operands.x), 0, 1);
    }
    if (faults_.then) {
      faults_.then(problem, operands);
    }
  }

 private:
  static float at(lora_bench::Dtype dtype, const void* array, std::int64_t index) {
    return lora_bench::load(dtype, array, index);
  }

  static void add(const lora_bench::Problem& problem, const lora_bench::Operands& operands,
                  std::int64_t token, std::int64_t column, float delta) {
    const std::int64_t index = token * problem.y_stride + column;
    const float before =
        problem.add_inputs ? at(problem.dtype[lora_bench::Role::kY], operands.y, index) : 0;
    lora_bench::store(problem.dtype[lora_bench::Role::kY], operands.y, index, before + delta);
  }

  float hidden(const lora_bench::Problem& problem, const lora_bench::Operands& operands,
               std::int64_t token, std::size_t slice, std::int64_t a_row) const {
    const std::int64_t k = problem.in_features - (faults_.loses_last_k ? 1 : 0);
    float sum = 0;
    float earlier = 0;
    for (std::int64_t i = 0; i < k; ++i) {
      if (faults_.bf16_partials && i == k / 2) {
        earlier = rounded(sum, lora_bench::Dtype::kBf16);
        sum = 0;
      }
      sum += at(problem.dtype[lora_bench::Role::kX], operands.x, token * problem.x_stride + i) *
             at(problem.dtype[lora_bench::Role::kA], operands.a[slice],
                a_row * problem.in_features + i);
    }
    const bool narrow = faults_.bf16_partials || faults_.bf16_sum;
    return narrow ? earlier + rounded(sum, lora_bench::Dtype::kBf16) : sum;
  }

  static float rounded(float value, lora_bench::Dtype dtype) {
    float stored = 0;
    lora_bench::store(dtype, &stored, 0, value);
    return lora_bench::load(dtype, &stored, 0);
  }

  void row(const lora_bench::Problem& problem, const lora_bench::Operands& operands,
           std::int64_t token, std::int32_t adapter) const {
    using lora_bench::ScaleAt;
    const std::int64_t lanes = operands.rank[adapter] + (faults_.reads_padding_lane ? 1 : 0);
    const float scale = faults_.ignores_scale ? 1 : operands.scale[adapter];
    std::int64_t column = problem.offset_start;
    for (std::size_t slice = 0; slice < problem.widths.size(); ++slice) {
      const std::int64_t first_h =
          (static_cast<std::int64_t>(slice) * problem.tokens + token) * problem.max_rank;
      for (std::int64_t lane = 0; has_shrink(problem.op) && lane < lanes; ++lane) {
        float h = hidden(problem, operands, token, slice, adapter * problem.max_rank + lane);
        h *= problem.scale_at == ScaleAt::kShrink ? scale : 1;
        h = faults_.bf16_hidden ? rounded(h, lora_bench::Dtype::kBf16) : h;
        lora_bench::store(problem.dtype[lora_bench::Role::kH], operands.h, first_h + lane, h);
      }
      if (has_expand(problem.op)) {
        expand(problem, operands, token, adapter, slice, column, lanes, first_h,
               problem.scale_at == ScaleAt::kExpand ? scale : 1);
      }
      column += problem.widths[slice];
    }
  }

  void expand(const lora_bench::Problem& problem, const lora_bench::Operands& operands,
              std::int64_t token, std::int32_t adapter, std::size_t slice,
              std::int64_t first_column, std::int64_t lanes, std::int64_t first_h,
              float scale) const {
    const std::int64_t width = problem.widths[slice];
    for (std::int64_t column = 0; column < width; ++column) {
      const std::int64_t b_row = adapter * width + column;
      float delta = 0;
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        delta += at(problem.dtype[lora_bench::Role::kH], operands.h, first_h + lane) *
                 at(problem.dtype[lora_bench::Role::kB], operands.b[slice],
                    b_row * problem.max_rank + lane);
      }
      delta *= scale;
      if (problem.bias) {
        delta += at(problem.dtype[lora_bench::Role::kBias], operands.bias[slice], b_row);
      }
      if (faults_.writes_nan && token == problem.tokens - 1) {
        delta = std::nanf("");
      }
      if (faults_.rounds_delta) {
        delta = rounded(delta, problem.dtype[lora_bench::Role::kY]);
      }
      if (token != faults_.token_without_delta) {
        add(problem, operands, token, first_column + column, delta);
      }
    }
  }

  Faults faults_;
};

// For who needs a backend that is asked for nothing but how much memory it wants.
inline const PlainBackend& plain_backend() {
  static const PlainBackend backend;
  return backend;
}
