#include "verify/diagnose.h"

namespace lora_bench {
namespace {

struct Entry {
  HypothesisDoc doc;
  Test test = nullptr;  // null: told by guards or relations, not by the values
  // Without a meaning: asked once more, after more specific ones.
  [[nodiscard]] bool again() const { return doc.meaning.empty(); }
};

// The most specific first: what agrees with an earlier one is not asked further.
const std::vector<Entry>& entries() {
  static const std::vector<Entry> kEntries{
      {{"h-misquantised", "h is quantised between the sums otherwise than the case says"},
       test_h_misquantised},
      {{"rounding-not-done", "a rounding that is declared is not done"}, test_rounding_not_done},
      {{"zero-delta", "the rows hold what was there before: no delta was added"}, test_zero_delta},
      {{"stale-output", "the result was never written: it holds what was there before"},
       test_stale_output},
      {{"layout-misread", "an operand is read as if it lay otherwise than the case says"},
       test_layout_misread},
      {{"lost-columns", "some columns were not written, the others are right"}, test_lost_columns},
      {{"missing-add", "the result overwrites y instead of adding to it"}, test_missing_add},
      {{"double-add", "what was in y, or the delta, is counted twice"}, test_double_add},
      {{"unasked-add", "the result is added to what was there before, which it overwrites"},
       test_unasked_add},
      {{"bias-forgotten", "the bias is missing"}, test_bias_forgotten},
      {{"double-bias", "the bias is added twice"}, test_double_bias},
      {{"bias-scaled", "the bias is multiplied by the scale of the adapter"}, test_bias_scaled},
      {{"factor-misread", "the delta of a row is multiplied by another factor than its own"},
       test_factor_misread},
      {{"missing-scale", "the scale of the adapter is not applied"}, test_missing_scale},
      {{"double-scale", "the scale of the adapter is applied twice"}, test_double_scale},
      {{"lost-k-tail", "the last elements of every sum over K are missing"}, test_lost_k_tail},
      {{"lost-rank-lane", "the last rank lanes are missing"}, test_lost_rank_lane},
      {{"slices-swapped", "two slices of one width have changed places"}, test_slices_swapped},
      {{"column-shift", "the columns are right but stand elsewhere"}, test_column_shift},
      {{"wrong-adapter", "rows hold the result of another adapter"}, test_wrong_adapter},
      {{"x-of-other-token", "rows that share x read that of another token"}, test_x_of_other_token},
      {{"neighbour-row", "rows hold the result of another row"}, test_neighbour_row},
      {{"base-rows-written", "rows without an adapter (or of rank 0) were changed"},
       test_base_rows_written},
      {{"unused-memory-read",
        "NaN from rank padding, an unused slot, a gap or an unwritten buffer"},
       test_unused_memory_read},
      {{"weight-scale-misread",
        "weights of eight bits are multiplied with other scales than theirs"},
       test_weight_scale_misread},
      {{"weights-misread", "numbers of eight bits are taken for others"}, test_weights_misread},
      {{"x-scale-misread", "an x of eight bits is multiplied with other scales than its own"},
       test_x_scale_misread},
      {{"x-misread", "numbers of an x of eight bits are taken for others"}, test_x_misread},
      {{"h-scale-misread", "an h of eight bits is multiplied with other scales than its own"},
       test_h_scale_misread},
      {{"h-misread", "numbers of an h of eight bits are taken for others"}, test_h_misread},
      {{"truncated-result", "the result is cut to the output type, not rounded"},
       test_truncated_result},
      {{"rounded-delta", "delta is rounded to the output type before it is added"},
       test_rounded_delta},
      {{"low-precision-intermediate", "h is rounded or truncated to a narrower type"},
       test_low_precision_intermediate},
      {{"wrong-scale", "the delta is a constant multiple of the right one"}, test_wrong_scale},
      {{"low-precision-partials", "errors look like sums over K kept in a narrower type"},
       test_low_precision_partials},
      {{"base-rows-written", ""}, test_base_rows_written_too},
      {{"written-outside", "memory that is not the op's was written"}, test_written_outside},
      {{"stale-weights", "the weights are those of a launch before, which were kept"}, nullptr},
      {{"input-changed", "an input was written"}, nullptr},
      {{"not-repeatable", "the same launch gives other bits: an order that varies, or a race"},
       nullptr},
      {{"state-left", "the result depends on what was launched before"}, nullptr},
      {{"out-of-turn",
        "it reads before the launches before it have ended, goes on after its stream does, or "
        "keeps numbers of another launch"},
       nullptr},
      {{"memory-kept", "every launch allocates what it never gives back"}, nullptr},
      {{"depends-on-batch", "a row's bits depend on the rows around it"}, nullptr},
  };
  return kEntries;
}

}  // namespace

const std::vector<HypothesisDoc>& hypotheses() {
  static const std::vector<HypothesisDoc> kDocs = [] {
    std::vector<HypothesisDoc> docs;
    for (const Entry& entry : entries()) {
      if (!entry.again()) {
        docs.push_back(entry.doc);
      }
    }
    return docs;
  }();
  return kDocs;
}

Hypothesis diagnose(const Problem& problem, const Tensors& tensors, const Numerics& numerics,
                    const void* got, const Comparison& comparison) {
  if (got == nullptr || comparison.wrong_rows.empty()) {
    return {};
  }
  const Evidence evidence = gather_evidence(problem, tensors, numerics, got, comparison);
  for (const Entry& entry : entries()) {
    const std::string sentence = entry.test == nullptr ? "" : entry.test(evidence);
    if (!sentence.empty()) {
      return {std::string(entry.doc.key), sentence};
    }
  }
  return {};
}

Hypothesis hypothesis_of(std::string_view key) {
  for (const HypothesisDoc& doc : hypotheses()) {
    if (doc.key == key) {
      return {std::string(doc.key), std::string(doc.meaning)};
    }
  }
  return {};
}

Hypothesis written_outside() { return {"written-outside", "memory beside an operand was written"}; }

Hypothesis input_changed() {
  return {"input-changed", "an operand that is only to be read was written"};
}

}  // namespace lora_bench
