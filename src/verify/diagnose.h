#pragma once

#include <string>
#include <string_view>
#include <vector>

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

// The hypothesis of that key with its meaning as the sentence; empty where there is none.
[[nodiscard]] Hypothesis hypothesis_of(std::string_view key);

// What guard bands and inputs tell without a prediction.
[[nodiscard]] Hypothesis written_outside();
[[nodiscard]] Hypothesis input_changed();

}  // namespace lora_bench
