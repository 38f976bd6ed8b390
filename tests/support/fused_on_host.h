#pragma once

#include <cstring>
#include <string_view>
#include <vector>

#include "ops/fused_layer.h"
#include "support/around_cpu.h"

namespace lora_bench {

// A base product of the cpu backend, of W whose rows have something behind them.
inline void launch_dense(const Backend& cpu, const Problem& base, const Operands& operands,
                         Stream stream) {
  Problem dense = base;
  dense.a_stride = 0;
  const std::int64_t row = bytes_of(base.dtype[Role::kA], base.in_features);
  const std::int64_t stride =
      base.a_stride > 0 ? bytes_of(base.dtype[Role::kA], base.a_stride) : row;
  std::vector<char> w(static_cast<std::size_t>(base.max_rank * row));
  for (std::int64_t i = 0; i < base.max_rank; ++i) {
    std::memcpy(w.data() + i * row, static_cast<const char*>(operands.a[0]) + i * stride,
                static_cast<std::size_t>(row));
  }
  Operands of_dense = operands;
  of_dense.a = {w.data()};
  cpu.launch(dense, of_dense, stream);
}

// The cpu backend's base product, of whose layers Fused makes the whole. Fused counts its launches.
template <typename Fused>
class FusedOnHost final : public test::AroundCpu {
 public:
  [[nodiscard]] std::string_view name() const override { return "fused-on-host"; }
  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    launch_dense(inner(), problem, operands, stream);
  }
  [[nodiscard]] const FusedLayer* fused() const override { return &fused_; }
  [[nodiscard]] int launches() const { return fused_.launches; }

 private:
  Fused fused_{inner()};
};

}  // namespace lora_bench
