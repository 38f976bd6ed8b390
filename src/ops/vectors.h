#pragma once

#include "kernels/params.h"

namespace lora_bench {

// Whether every row that a kernel reads begins where 16 bytes can be read at once.
[[nodiscard]] bool reads_vectors(const kernels::ShrinkParams& params, std::int64_t element_bytes);
[[nodiscard]] bool reads_vectors(const kernels::ExpandParams& params, std::int64_t element_bytes,
                                 std::int64_t h_bytes);
// The same of y, in every slice.
[[nodiscard]] bool has_vector_y(const kernels::ExpandParams& params, std::int64_t element_bytes);
// Whether clusters can copy the weights in bulk: lanes of A, and eight columns of B at a time, of
// which eight bytes are read at once.
[[nodiscard]] bool copies_in_bulk(const kernels::ShrinkParams& shrink,
                                  const kernels::ExpandParams& expand, std::int64_t element_bytes);
// Whether panels of expand can: rows of y and bias 16 bytes at a time, columns of B eight.
[[nodiscard]] bool expands_in_vectors(const kernels::ExpandParams& params,
                                      std::int64_t element_bytes);

}  // namespace lora_bench
