#pragma once

#include "kernels/params.h"
#include "kernels/weight_number.h"
#include "ops/backend.h"

namespace lora_bench {

// A problem and its addresses as the kernels take them. Throws CaseError for more slices than
// kernels::kMaxSlices; backends say so in supports() before.
[[nodiscard]] kernels::ShrinkParams shrink_params(const Problem& problem, const Operands& operands);
[[nodiscard]] kernels::ExpandParams expand_params(const Problem& problem, const Operands& operands);

// Of weights of eight bits, whose scales are of slots or of rows.
[[nodiscard]] kernels::WeightScales weight_scales(const Problem& problem, const Operands& operands);

// Throws CaseError for a dtype that no kernel takes.
[[nodiscard]] kernels::Number kernel_number(Dtype dtype);
// Of A and B.
[[nodiscard]] kernels::WeightNumber weight_number(Dtype dtype);

// What every kernel family refuses alike: dtypes, intermediates, too many slices.
[[nodiscard]] Support kernels_take(const Problem& problem);
// The same, and what all but `naive` refuse of what is asked beyond the plain op, but for `also`.
[[nodiscard]] Support fast_kernels_take(const Problem& problem, Semantics also = {});
// The same for those that multiply on tensor cores: 16-bit operands only, sm_80 and up.
[[nodiscard]] Support tensor_cores_take(const Problem& problem, const DeviceFacts& device,
                                        Semantics also = {});
// Groups that `grouped` and `chunked` launch for: those of the batch where the plan is sorted,
// whose arrays may have room for more, and those of a published form.
[[nodiscard]] std::int64_t launched_groups(const Problem& problem);
// Whether what is launched is the same for every batch of as many tokens over these slots.
[[nodiscard]] bool serves_any_batch(const Problem& problem);

// Whether every row that a kernel reads begins where 16 bytes can be read at once.
[[nodiscard]] bool reads_vectors(const kernels::ShrinkParams& params, std::int64_t element_bytes);
[[nodiscard]] bool reads_vectors(const kernels::ExpandParams& params, std::int64_t element_bytes,
                                 std::int64_t h_bytes);
// The same of y, in every slice.
[[nodiscard]] bool has_vector_y(const kernels::ExpandParams& params, std::int64_t element_bytes);
// Whether clusters can copy the weights in bulk: lanes of A, and eight columns of B at a time, of
// which eight bytes are read at once.
[[nodiscard]] bool copies_in_bulk(const kernels::ShrinkParams& shrink,
                                  const kernels::ExpandParams& expand, std::int64_t element_bytes,
                                  std::int64_t weight_bytes);
// The same of their scales, where each column of B has one.
[[nodiscard]] bool copies_in_bulk(const kernels::WeightScales& scales);
// Whether every operand begins where panel reads it beside weights of eight bits.
[[nodiscard]] bool panel_reads_eight_bits(const Problem& problem, const Operands& operands);
// Whether panels of expand can: rows of y and bias 16 bytes at a time, columns of B eight.
[[nodiscard]] bool expands_in_vectors(const kernels::ExpandParams& params,
                                      std::int64_t element_bytes);

}  // namespace lora_bench
