#include <algorithm>
#include <iterator>

#include "verify/mutant_values.h"

namespace lora_bench {
namespace {

std::int64_t place_in_plan(const Operands& operands, std::int64_t tokens, std::int64_t row) {
  return std::find(operands.token_order, operands.token_order + tokens, row) - operands.token_order;
}

}  // namespace

std::vector<FaultEntry> expert_faults() {
  return {
      {Fault::kFactorForgotten,
       {"factor-forgotten", "no delta is multiplied by the factor of its row", "factor-misread",
        "design"}},
      {Fault::kFactorTwice,
       {"factor-twice", "every delta is multiplied by the factor of its row twice",
        "factor-misread", "vLLM's w2 where the weight is at the input"}},
      {Fault::kFactorInverted,
       {"factor-inverted", "every delta is divided by the factor of its row", "factor-misread",
        "design"}},
      {Fault::kFactorOfNextPair,
       {"factor-of-next-pair", "a pair has the factor of the next pair", "factor-misread",
        "design"}},
      {Fault::kFactorOfFirstChoice,
       {"factor-of-first-choice", "all pairs of a token have the factor of its first one",
        "factor-misread", "design"}},
      {Fault::kFactorByPlaceInPlan,
       {"factor-by-place-in-plan", "factors are read as if they lay in the order of the plan",
        "factor-misread", "design"}},
      {Fault::kFactorRoundedToBf16,
       {"factor-rounded-to-bf16", "factors are rounded to the 8 bits of bf16", "factor-misread",
        "design"}},
      {Fault::kXOfPair,
       {"x-of-pair", "the number of a pair is taken for that of its token", "x-of-other-token",
        "design"}},
      {Fault::kXOfNextToken,
       {"x-of-next-token", "a pair reads the x of the next token", "x-of-other-token", "design"}},
      {Fault::kXByPlaceInPlan,
       {"x-by-place-in-plan",
        "the tokens of pairs are read as if they lay in the order of the plan", "x-of-other-token",
        "design"}},
      {Fault::kXByOneChoiceLess,
       {"x-by-one-choice-less", "a token is taken to have one choice less than it has",
        "x-of-other-token", "design"}},
      {Fault::kLaterChoicesLost,
       {"later-choices-lost", "of each token only the first choice is done", "zero-delta",
        "design"}},
      {Fault::kExpertOfNext,
       {"expert-of-next", "a pair has the next expert of its adapter", "wrong-adapter", "design"}},
      {Fault::kExpertsSlowest,
       {"experts-slowest", "weights are read as if adapters ran fastest and experts slowest",
        "wrong-adapter", "vLLM #31534"}},
      {Fault::kExpertsOfOneLess,
       {"experts-of-one-less", "weights are read as if each adapter had one expert less",
        "wrong-adapter", "SGLang #23178, llama.cpp #29128"}},
      {Fault::kExpertOfFirstAdapter,
       {"expert-of-first-adapter", "all pairs have the weights of the first adapter",
        "wrong-adapter", "design"}},
  };
}

float factor_taken(const Problem& problem, const Operands& operands, std::int64_t row,
                   Fault fault) {
  if (operands.factor == nullptr || fault == Fault::kFactorForgotten) {
    return 1;
  }
  const float own = operands.factor[row];
  switch (fault) {
    case Fault::kFactorTwice:
      return own * own;
    case Fault::kFactorInverted:
      return 1 / own;
    case Fault::kFactorOfNextPair:
      return operands.factor[(row + 1) % problem.tokens];
    case Fault::kFactorOfFirstChoice:
      return operands.factor[row - row % problem.route.choices];
    case Fault::kFactorByPlaceInPlan:
      return operands.factor[place_in_plan(operands, problem.tokens, row)];
    case Fault::kFactorRoundedToBf16:
      return rounded_to_bf16(own);
    default:
      return own;
  }
}

std::int64_t x_row_taken(const Problem& problem, const Operands& operands, std::int64_t slice,
                         std::int64_t row, Fault fault) {
  if (operands.token_of_row == nullptr) {
    return problem.x_row(fault == Fault::kXOfFirstSlice ? 0 : slice, row);
  }
  const std::int64_t own = operands.token_of_row[row];
  switch (fault) {
    case Fault::kXOfPair:
      return row % problem.x_rows();
    case Fault::kXOfNextToken:
      return (own + 1) % problem.x_rows();
    case Fault::kXByPlaceInPlan:
      return operands.token_of_row[place_in_plan(operands, problem.tokens, row)];
    case Fault::kXByOneChoiceLess:
      return row / std::max<std::int64_t>(problem.route.choices - 1, 1) % problem.x_rows();
    default:
      return own;
  }
}

bool loses_choice(const Problem& problem, std::int64_t row, Fault fault) {
  return fault == Fault::kLaterChoicesLost && row % problem.route.choices != 0;
}

std::int32_t slot_of_expert(const Problem& problem, std::int32_t slot, Fault fault) {
  const auto experts = static_cast<std::int32_t>(problem.route.experts);
  if (experts < 2 || slot < 0) {
    return slot;
  }
  const std::int32_t adapters = static_cast<std::int32_t>(problem.slots) / experts;
  const std::int32_t adapter = slot / experts, expert = slot % experts;
  switch (fault) {
    case Fault::kExpertOfNext:
      return adapter * experts + (expert + 1) % experts;
    case Fault::kExpertsSlowest:
      return expert * adapters + adapter;
    case Fault::kExpertsOfOneLess:
      return adapter * (experts - 1) + expert;
    case Fault::kExpertOfFirstAdapter:
      return expert;
    default:
      return slot;
  }
}

}  // namespace lora_bench
