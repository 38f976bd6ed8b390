#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "verify/evidence.h"
#include "verify/verify.h"

namespace lora_bench {

struct Hypothesis {
  std::string key;       // "wrong-adapter"
  std::string sentence;  // "rows 3, 7 hold the result of adapter 5 instead of 2"
};

// Every key that diagnose() can name, with one line each, for `list` and docs.
struct HypothesisDoc {
  std::string_view key;
  std::string_view meaning;
};
[[nodiscard]] const std::vector<HypothesisDoc>& hypotheses();

// The hypothesis whose prediction agrees with `got` in all wrong rows, the most specific first;
// empty key when none does. A few of the wrong rows stand for all.
[[nodiscard]] Hypothesis diagnose(const Problem& problem, const Tensors& tensors,
                                  const Numerics& numerics, const void* got,
                                  const Comparison& comparison);

// "stale-weights" if the weights of `earlier`, which were launched before in another fill of the
// same step, give what is there; empty where they do not.
[[nodiscard]] Hypothesis diagnose_stale_weights(const Problem& problem, const Tensors& tensors,
                                                const Tensors& earlier, const Numerics& numerics,
                                                const void* got, const Comparison& comparison);

// The hypothesis of that key with its meaning as the sentence; empty where there is none.
[[nodiscard]] Hypothesis hypothesis_of(std::string_view key);

// What guard bands and inputs tell without a prediction.
[[nodiscard]] Hypothesis written_outside();
[[nodiscard]] Hypothesis input_changed();

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

// What was declared and not done.
[[nodiscard]] std::string test_rounding_not_done(const Evidence& evidence);

// From where in a buffer that does not lie as tensors do.
[[nodiscard]] std::string test_layout_misread(const Evidence& evidence);
// The same where all that shows is NaN, as other reads would bring in too: a lead, "" without one.
[[nodiscard]] std::string layout_misread_in_nan(const Evidence& evidence);

// How weights of eight bits and their scales are read.
[[nodiscard]] std::string test_weight_scale_misread(const Evidence& evidence);
[[nodiscard]] std::string test_weights_misread(const Evidence& evidence);
// The same of an x, or a given h, of eight bits.
[[nodiscard]] std::string test_factor_misread(const Evidence& evidence);
[[nodiscard]] std::string test_x_of_other_token(const Evidence& evidence);
[[nodiscard]] std::string test_x_scale_misread(const Evidence& evidence);
[[nodiscard]] std::string test_x_misread(const Evidence& evidence);
[[nodiscard]] std::string test_h_scale_misread(const Evidence& evidence);
[[nodiscard]] std::string test_h_misread(const Evidence& evidence);
// How an h is quantised between the sums.
[[nodiscard]] std::string test_h_misquantised(const Evidence& evidence);

// By which arithmetic.
[[nodiscard]] std::string test_missing_add(const Evidence& evidence);
[[nodiscard]] std::string test_double_add(const Evidence& evidence);
[[nodiscard]] std::string test_unasked_add(const Evidence& evidence);
[[nodiscard]] std::string test_bias_forgotten(const Evidence& evidence);
[[nodiscard]] std::string test_double_bias(const Evidence& evidence);
[[nodiscard]] std::string test_bias_scaled(const Evidence& evidence);
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
