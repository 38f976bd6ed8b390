#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ops/backend.h"

namespace lora_bench {

// A base product that adds what the adapters of a layer add before y is rounded, in one launch:
// y = RN(base + delta). `base` as make_base_product takes it, `lora` the linear op on the same x
// and y.
class FusedLayer {
 public:
  virtual ~FusedLayer() = default;
  // "" where it takes them, whatever batch of as many rows is activated later.
  [[nodiscard]] virtual std::string why_not(const Problem& base, const Problem& lora) const = 0;
  // Whether it is expected to take less time than the base and a backend for the adapters.
  [[nodiscard]] virtual bool is_quicker(const Problem& base, const Problem& lora) const = 0;
  // Whether a row to which nothing is added has the bits of the base alone.
  [[nodiscard]] virtual bool same_base(const Problem& base, const Problem& lora) const = 0;
  // Rows whose adapters are left to an expand after the launch, of the h that it leaves in the
  // operands; all others -1. None: no row is.
  [[nodiscard]] virtual std::optional<Plan> left_over(const Problem& base,
                                                      const Problem& lora) const {
    static_cast<void>(base);
    static_cast<void>(lora);
    return std::nullopt;
  }
  // Additions on the longest path of the base's sums, which are not those of the base alone.
  [[nodiscard]] virtual std::int64_t base_depth(const Problem& base, const Problem& lora) const {
    static_cast<void>(lora);
    return base.in_features;
  }
  // Of what adapters add.
  [[nodiscard]] virtual Numerics numerics(const Problem& base, const Problem& lora) const = 0;
  // All 0 before the first launch; no two launches may use it at a time.
  [[nodiscard]] virtual std::int64_t workspace_bytes(const Problem& base,
                                                     const Problem& lora) const = 0;
  // `of_lora` has the workspace.
  virtual void launch(const Problem& base, const Operands& of_base, const Problem& lora,
                      const Operands& of_lora, Stream stream) const = 0;
};

// Elements behind each row of x and W of a fused layer that its launch may write
// (kernels/continued).
[[nodiscard]] std::int64_t room_behind_inputs(const Problem& base, const Problem& lora);

// The base product of few rows by kernels/streamed, alone or with what adapters add. `base` as
// make_base_product takes it, and adding no y.
[[nodiscard]] bool streamed_takes(const Problem& base);
[[nodiscard]] Numerics streamed_numerics(const Problem& base);
void launch_streamed_product(const Problem& base, const Operands& operands, Stream stream);

[[nodiscard]] std::unique_ptr<FusedLayer> make_streamed_layer();

// Whether layers of so many rows go on over their adapters, rather than be of few rows.
[[nodiscard]] bool is_of_many_rows(const Problem& lora);

// The slots of this batch that such a product goes on over; and the rows of all others, none where
// every slot has room.
[[nodiscard]] std::vector<std::int32_t> continued_slots_of(const Problem& base,
                                                           const Problem& lora);
[[nodiscard]] std::optional<Plan> left_over_by(const Problem& base, const Problem& lora);

// The base product of many rows, whose columns go on over the adapters: h behind x, B behind W
// (kernels/continued), and then one product by `base`, which outlives it.
[[nodiscard]] std::unique_ptr<FusedLayer> make_continued_layer(const Backend& base);

}  // namespace lora_bench
