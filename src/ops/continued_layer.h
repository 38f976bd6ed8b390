#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ops/fused_layer.h"

namespace lora_bench {

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
