#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "core/dtype.h"
#include "verify/diagnose.h"
#include "verify/oracle.h"

namespace lora_bench {
namespace {

// A declaration without one of its roundings, and how that is told.
struct Undone {
  std::string_view field;
  std::string sentence;
  std::function<void(Numerics&)> undo;
};

// What of the bias was not done as declared, if another way is how it was added.
std::string told_of_bias(BiasAdded declared, BiasAdded done) {
  const std::string_view added = declared == BiasAdded::kBefore ? "delta" : "the bias";
  return done == BiasAdded::kWithDelta
             ? fmt::format(
                   "bias_added is declared as {}, but y was not rounded before {} was added",
                   name(declared), added)
             : fmt::format("bias_added is declared as {}, but the bias was added {} delta",
                           name(declared), name(done));
}

std::vector<Undone> declared_roundings(const Evidence& evidence) {
  const Problem& problem = evidence.problem;
  const Numerics& declared = evidence.numerics;
  std::vector<Undone> all;
  if (declared.rounds_delta) {
    all.push_back({"rounds_delta",
                   "rounds_delta is declared, but delta was not rounded before it was added to y",
                   [](Numerics& numerics) { numerics.rounds_delta = false; }});
  }
  if (declared.casts_h) {
    all.push_back({"casts_h",
                   fmt::format("casts_h is declared, but h was not rounded to {} before it was "
                               "multiplied with B",
                               name(problem.dtype_of_cast())),
                   [](Numerics& numerics) { numerics.casts_h = false; }});
  }
  if (has_shrink(problem.op) && declared.intermediate != Dtype::kFp32) {
    all.push_back({"intermediate",
                   fmt::format("h is declared to be kept in {}, but was not rounded to it",
                               name(declared.intermediate)),
                   [](Numerics& numerics) { numerics.intermediate = Dtype::kFp32; }});
  }
  for (const BiasAdded done : {BiasAdded::kWithDelta, BiasAdded::kBefore, BiasAdded::kAfter}) {
    if (problem.bias && declared.bias_added != BiasAdded::kWithDelta &&
        done != declared.bias_added) {
      all.push_back({"bias_added", told_of_bias(declared.bias_added, done),
                     [done](Numerics& numerics) { numerics.bias_added = done; }});
    }
  }
  return all;
}

// Whether every row is as it should be had this been declared.
bool is_right_by(const Evidence& evidence, const Numerics& numerics) {
  return !evidence.rows.empty() &&
         std::all_of(evidence.rows.begin(), evidence.rows.end(), [&](const WrongRow& row) {
           const reference::Rows right =
               evaluate_rows(evidence.problem, evidence.tensors, numerics, std::vector{row.token});
           Prediction prediction{right.expected, right.expected, right.owned};
           for (std::size_t column = 0; column < right.bound.size(); ++column) {
             prediction.least[column] -= right.bound[column];
             prediction.most[column] += right.bound[column];
           }
           return agrees(evidence, row, prediction) == Agreement::kYes;
         });
}

}  // namespace

std::string test_rounding_not_done(const Evidence& evidence) {
  if (!evidence.expand) {
    return "";
  }
  const std::vector<Undone> roundings = declared_roundings(evidence);
  Numerics none = evidence.numerics;
  std::vector<std::string_view> fields;
  for (const Undone& undone : roundings) {
    Numerics without = evidence.numerics;
    undone.undo(without);
    if (is_right_by(evidence, without)) {
      return undone.sentence;
    }
    if (std::find(fields.begin(), fields.end(), undone.field) == fields.end()) {
      undone.undo(none);
      fields.push_back(undone.field);
    }
  }
  return fields.size() > 1 && is_right_by(evidence, none)
             ? fmt::format("none of the declared roundings was done: {}", fmt::join(fields, ", "))
             : "";
}

}  // namespace lora_bench
