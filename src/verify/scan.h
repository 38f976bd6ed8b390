#pragma once

#include <optional>

#include "verify/verify.h"

namespace lora_bench {

// Whether the row belongs to the op: it has an adapter, of a rank above 0.
[[nodiscard]] bool owns_row(const Problem& problem, std::int64_t token);
// The same of one lane of h, `column` counting lanes slice after slice.
[[nodiscard]] bool owns_lane(const Problem& problem, std::int64_t token, std::int64_t column);
// Elements of the output that the op must write.
[[nodiscard]] std::int64_t owned_elements(const Problem& problem);

// Without an oracle, over every row: what nobody owns has the bits of before, and what the op owns
// holds no NaN (poison that was never overwritten is one). Nothing when all is well.
[[nodiscard]] std::optional<Failure> scan_all_rows(const Problem& problem, const Tensors& tensors,
                                                   const void* got);

// Whether any of `count` elements is one.
[[nodiscard]] bool holds_nan(Dtype dtype, const std::byte* first, std::int64_t count);
[[nodiscard]] bool holds_infinity_or_nan(Dtype dtype, const std::byte* first, std::int64_t count);

// Rows with an infinity where the op owns the element, the first few: right only where the oracle
// says so.
[[nodiscard]] std::vector<std::int64_t> infinite_rows(const Problem& problem, const void* got);

}  // namespace lora_bench
