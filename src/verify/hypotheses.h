#pragma once

#include <string>
#include <vector>

#include "verify/evidence.h"

namespace lora_bench {

// Each looks at the evidence and answers with a sentence if it explains all of it, else with "".
using Test = std::string (*)(const Evidence&);

[[nodiscard]] std::string rows_named(const Evidence& evidence);  // "row 3", "rows 3, 7"
// "row 3 holds", "rows 3, 7 hold": of a verb that only takes an s.
[[nodiscard]] std::string rows_that(const Evidence& evidence, const std::string& verb);

// What was written at all, and where.
[[nodiscard]] std::string test_base_rows_written(const Evidence& evidence);
// The same where rows with an adapter are wrong as well, and nothing beside the slices was written.
[[nodiscard]] std::string test_base_rows_written_too(const Evidence& evidence);
[[nodiscard]] std::string test_written_outside(const Evidence& evidence);
[[nodiscard]] std::string test_lost_columns(const Evidence& evidence);
[[nodiscard]] std::string test_zero_delta(const Evidence& evidence);
[[nodiscard]] std::string test_stale_output(const Evidence& evidence);
[[nodiscard]] std::string test_unused_memory_read(const Evidence& evidence);
[[nodiscard]] std::string test_column_shift(const Evidence& evidence);
[[nodiscard]] std::string test_slices_swapped(const Evidence& evidence);

// From whose numbers.
[[nodiscard]] std::string test_wrong_adapter(const Evidence& evidence);
[[nodiscard]] std::string test_neighbour_row(const Evidence& evidence);
[[nodiscard]] std::string test_lost_k_tail(const Evidence& evidence);
[[nodiscard]] std::string test_lost_rank_lane(const Evidence& evidence);

// By which arithmetic.
[[nodiscard]] std::string test_missing_add(const Evidence& evidence);
[[nodiscard]] std::string test_double_add(const Evidence& evidence);
[[nodiscard]] std::string test_bias_forgotten(const Evidence& evidence);
[[nodiscard]] std::string test_double_bias(const Evidence& evidence);
[[nodiscard]] std::string test_missing_scale(const Evidence& evidence);
[[nodiscard]] std::string test_double_scale(const Evidence& evidence);
[[nodiscard]] std::string test_wrong_scale(const Evidence& evidence);
[[nodiscard]] std::string test_truncated_result(const Evidence& evidence);
[[nodiscard]] std::string test_rounded_delta(const Evidence& evidence);
[[nodiscard]] std::string test_low_precision_intermediate(const Evidence& evidence);
[[nodiscard]] std::string test_low_precision_partials(const Evidence& evidence);

// Whether `change` on a model of the row predicts every row that the op owns, and there are some.
template <typename Change>
[[nodiscard]] bool explains(const Evidence& evidence, Change change) {
  bool proved = false;
  for (const WrongRow& row : evidence.rows) {
    RowModel model(evidence, row);
    if (model.rank() == 0) {
      return false;
    }
    change(model);
    const Agreement agreement = agrees(evidence, row, model.predict());
    if (agreement == Agreement::kNo) {
      return false;
    }
    proved = proved || agreement == Agreement::kYes;
  }
  return proved;
}

}  // namespace lora_bench
