#pragma once

#include <cstdint>
#include <span>

#include "ops/backend.h"
#include "reference/reference.h"
#include "workload/tensors.h"

namespace lora_bench {

[[nodiscard]] reference::Number number_of(Dtype dtype);

[[nodiscard]] reference::QuantiserRule oracle_rule(const QuantiserRule& rule);
// The case and the declaration as the oracle takes them. The views point into the arguments.
[[nodiscard]] reference::Problem oracle_problem(const Problem& problem, const Tensors& tensors);
[[nodiscard]] reference::Arithmetic oracle_arithmetic(const Problem& problem,
                                                      const Numerics& numerics);

// What y (or h, for shrink) must hold in the given rows, and the bound. Declared roundings are
// modelled for the exact fill, bounded for the others. On so many threads (0 = all cores).
[[nodiscard]] reference::Rows evaluate_rows(const Problem& problem, const Tensors& tensors,
                                            const Numerics& numerics,
                                            std::span<const std::int64_t> rows,
                                            std::int64_t threads = 0);
[[nodiscard]] reference::Rows evaluate_rows(const Problem& problem, const Tensors& tensors,
                                            const reference::Arithmetic& arithmetic,
                                            std::span<const std::int64_t> rows,
                                            std::int64_t threads = 0);

// The operand that the op writes, and its dtype.
[[nodiscard]] Dtype output_dtype(const Problem& problem);
[[nodiscard]] const HostTensor& output_before(const Problem& problem, const Tensors& tensors);

// Where the element (row, column of the oracle's rows) lies in the output.
[[nodiscard]] std::int64_t output_index(const Problem& problem, std::int64_t token,
                                        std::int64_t column);

}  // namespace lora_bench
