#include "verify/random_parts.h"

#include <numeric>

#include "scenario/schema.h"

namespace lora_bench {
namespace {

RankLaw random_ranks(Dice& dice, std::int64_t slots) {
  RankLaw law;
  if (dice.one_in(5)) {
    const double share = dice.one_of(std::array<double, 3>{0.25, 0.5, 0.875});
    const std::int64_t rank = dice.one_in(8) ? 0 : dice.size(kMostRank - 1);
    law.shares = {{rank, share}, {rank + dice.size(kMostRank - rank), 1 - share}};
    return law;
  }
  const std::int64_t ranks = std::min(slots, 1 + dice.below(4));
  for (std::int64_t i = 0; i < ranks; ++i) {
    law.list.push_back(random_rank(dice));
  }
  return law;
}

SkewLaw random_law(Dice& dice, std::int64_t slots) {
  SkewLaw law;
  law.kind =
      dice.one_of(std::array<Skew, 7>{Skew::kIdentical, Skew::kDistinct, Skew::kUniform,
                                      Skew::kZipf, Skew::kHot, Skew::kBlocks, Skew::kOneVsRest});
  if (law.kind == Skew::kOneVsRest && slots < 2) {
    law.kind = Skew::kDistinct;
  }
  if (law.kind == Skew::kZipf) {
    law.parameter = dice.one_of(std::array<double, 3>{0.5, 1.0, 1.5});
  } else if (law.kind == Skew::kHot) {
    law.parameter = dice.one_of(std::array<double, 4>{0, 0.5, 0.9, 1});
  }
  return law;
}

}  // namespace

std::int64_t random_rank(Dice& dice) { return dice.one_in(8) ? 0 : dice.size(kMostRank); }

AdapterSpec random_adapters(Dice& dice) {
  AdapterSpec adapters;
  adapters.slots = dice.one_in(6) ? dice.size(kMostSlots) : 1 + dice.below(9);
  adapters.rank = random_ranks(dice, adapters.slots);
  const std::int64_t scales = std::min(adapters.slots, 1 + dice.below(3));
  for (std::int64_t i = 0; i < scales; ++i) {
    adapters.scale.push_back(dice.one_of(std::array<double, 5>{0.5, 2.0, 1.0, 1.3, -0.7}));
  }
  adapters.bias = dice.coin();
  return adapters;
}

BatchSpec random_batch(Dice& dice) {
  BatchSpec batch;
  batch.decode = dice.one_in(8) ? 0 : dice.size(dice.one_in(5) ? kMostTokens : 40);
  if (dice.coin()) {
    for (std::int64_t chunk = 1 + dice.below(4); chunk > 0; --chunk) {
      batch.prefill.push_back(dice.size(dice.one_in(5) ? kMostTokens / 2 : 24));
    }
  }
  return batch;
}

std::int64_t tokens_of(const Case& spec) {
  return std::accumulate(spec.batch.prefill.begin(), spec.batch.prefill.end(), spec.batch.decode);
}

namespace {

bool takes_activations(const Case& spec) {
  return spec.weights.dtype &&
         (spec.op == Op::kLinear || spec.op == Op::kShrink || spec.op == Op::kExpand);
}

// An h of eight bits that is given has its storage from nowhere else, and none is quantised but
// beside an x that has scales for each token.
void settle_intermediate(Case& spec) {
  const bool given = spec.op == Op::kExpand && spec.activations.dtype;
  const bool by_token = spec.op == Op::kLinear && spec.activations.dtype &&
                        spec.activations.scale != ActivationsScale::kTensor;
  if (given || (is_eight_bits(spec.intermediate) && !by_token)) {
    spec.intermediate = Dtype::kFp32;
  }
  if (!is_eight_bits(spec.intermediate) && spec.op != Op::kQuantise) {
    spec.quantiser = {};
  }
}

void draw_quantised_h(Dice& dice, Case& spec) {
  spec.intermediate = dice.coin() ? Dtype::kE4m3 : Dtype::kE5m2;
  spec.quantiser.convert = dice.coin() ? Convert::kDivide : Convert::kMultiply;
  spec.quantiser.power_of_two = dice.coin();
  spec.quantiser.least_amax = dice.one_in(4) ? 1000 : 0;
}

void draw_activations(Dice& dice, ActivationsSpec& activations) {
  activations.dtype = dice.coin() ? Dtype::kE4m3 : Dtype::kE5m2;
  activations.scale = dice.one_of(
      std::array{ActivationsScale::kTensor, ActivationsScale::kToken, ActivationsScale::kBlock});
  if (activations.scale == ActivationsScale::kBlock) {
    constexpr std::array<std::int64_t, 6> kSizes{1, 5, 8, 32, 128, 200};
    activations.group = dice.one_of(kSizes);
  }
}

}  // namespace

void draw_weights(Dice dice, Case& spec) {
  if (!dice.one_in(4)) {
    return;
  }
  WeightsSpec& weights = spec.weights;
  spec.adapters.dtype.reset();
  weights.dtype = dice.coin() ? Dtype::kE4m3 : Dtype::kE5m2;
  weights.scale =
      dice.one_of(std::array{WeightsScale::kTensor, WeightsScale::kChannel, WeightsScale::kBlock});
  if (weights.scale == WeightsScale::kBlock) {
    constexpr std::array<std::int64_t, 6> kSizes{1, 5, 8, 32, 128, 200};
    weights.block = {dice.one_of(kSizes), dice.one_of(kSizes)};
  }
  if (takes_activations(spec) && dice.one_in(3)) {
    draw_activations(dice, spec.activations);
    if (spec.op == Op::kLinear && dice.one_in(3)) {
      draw_quantised_h(dice, spec);
    }
    settle_intermediate(spec);
  }
}

void settle_eight_bits(Case& spec) {
  if (!spec.weights.dtype) {
    spec.weights.scale = WeightsScale::kNone;
  }
  if (spec.weights.scale != WeightsScale::kBlock) {
    spec.weights.block.clear();
  }
  if (!takes_activations(spec)) {
    spec.activations = {};
  }
  if (!spec.activations.dtype) {
    spec.activations.scale = ActivationsScale::kNone;
  }
  if (spec.activations.scale != ActivationsScale::kBlock) {
    spec.activations.group = 0;
  }
  settle_intermediate(spec);
}

void draw_who_uses_what(Dice& dice, Case& spec, bool far) {
  const std::int64_t slots = spec.adapters.slots;
  spec.skew = random_law(dice, slots);
  spec.prefill_skew = dice.coin() ? spec.skew : random_law(dice, slots);
  spec.no_adapter = dice.one_of(std::array<double, 8>{0, 0, 0, 0.1, 0.25, 0.5, 0.9, 1});
  spec.no_adapter = far && spec.no_adapter > 0.5 ? 0 : spec.no_adapter;
  spec.order =
      dice.one_of(std::array<Order, 3>{Order::kShuffled, Order::kSorted, Order::kAsArrived});
  const auto sequences = spec.batch.decode + static_cast<std::int64_t>(spec.batch.prefill.size());
  if (dice.one_in(4) && spec.no_adapter == 0 && sequences > 0 && reaches_all_slots(spec.skew) &&
      reaches_all_slots(spec.prefill_skew)) {
    spec.adapters.active = 1 + dice.below(std::min(slots, sequences));
  }
}

}  // namespace lora_bench
