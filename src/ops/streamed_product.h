#pragma once

#include <memory>

#include "ops/fused_layer.h"

namespace lora_bench {

// The base product of few rows by kernels/streamed, alone or with what adapters add. `base` as
// base_product.h has it, and adding no y.
[[nodiscard]] bool streamed_takes(const Problem& base);
[[nodiscard]] Numerics streamed_numerics(const Problem& base);
void launch_streamed_product(const Problem& base, const Operands& operands, Stream stream);

[[nodiscard]] std::unique_ptr<FusedLayer> make_streamed_layer();

}  // namespace lora_bench
