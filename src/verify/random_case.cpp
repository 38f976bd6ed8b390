#include "verify/random_case.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>

#include "core/random.h"

namespace lora_bench {
namespace {

constexpr std::uint64_t kCaseStream = 0x63617365ULL;
constexpr std::uint64_t kVastStream = 0x76617374ULL << 32;
constexpr std::uint64_t kLimitsStream = 0x6C696D69ULL << 32;
constexpr std::uint64_t kScaleCaseStream = 0x7363616cULL << 32;
constexpr std::uint64_t kManySlotsStream = 0x736c6f74ULL << 32;

// What a case may cost, so that thousands take seconds: elements of all weights, and products of
// one linear op.
constexpr std::int64_t kMostWeights = std::int64_t{1} << 17;
constexpr std::int64_t kMostProducts = std::int64_t{1} << 20;

constexpr std::int64_t kMostFeatures = 2100;
constexpr std::int64_t kMostWidth = 600;
constexpr std::int64_t kMostRank = 512;
constexpr std::int64_t kMostSlices = 8;
constexpr std::int64_t kMostSlots = 80;
constexpr std::int64_t kMostTokens = 300;
// More of one dimension than 16 bits count, and of the others as little as that can cost.
constexpr std::int64_t kVast = std::int64_t{1} << 16;
constexpr std::int64_t kOneVastIn = 200;
// Ids that 8 bits do not count.
constexpr std::int64_t kManySlots = 257;
constexpr std::int64_t kOneManySlotsIn = 40;
constexpr std::int64_t kOneFarScaleIn = 5;

class Dice {
 public:
  Dice(std::uint64_t seed, std::uint64_t index, std::uint64_t stream = kCaseStream)
      : seed_(seed), stream_(stream + index) {}

  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(
        random_below(seed_, stream_, next_++, static_cast<std::uint64_t>(bound)));
  }
  template <typename Value, std::size_t kCount>
  Value one_of(const std::array<Value, kCount>& values) {
    return values[static_cast<std::size_t>(below(static_cast<std::int64_t>(kCount)))];
  }
  bool coin() { return below(2) == 1; }
  bool one_in(std::int64_t count) { return below(count) == 0; }

  // From 1 to `most`, every power of two as likely as the next; half of them are one of these or
  // its neighbour, where tiles, vectors and warps end.
  std::int64_t size(std::int64_t most) {
    std::int64_t powers = 1;
    while ((std::int64_t{1} << powers) <= most) {
      ++powers;
    }
    const std::int64_t power = std::int64_t{1} << below(powers);
    const std::int64_t drawn = coin() ? power + below(power) : power + below(3) - 1;
    return std::clamp<std::int64_t>(drawn, 1, most);
  }

 private:
  std::uint64_t seed_, stream_, next_ = 0;
};

LayerShape random_layer(Dice& dice, Op op) {
  LayerShape layer;
  layer.name = "custom";
  layer.in_features = dice.size(kMostFeatures);
  const std::int64_t slices = op == Op::kLogits || dice.one_in(3) ? 1 : 1 + dice.below(kMostSlices);
  for (std::int64_t slice = 0; slice < slices; ++slice) {
    layer.widths.push_back(dice.one_in(7) ? 0 : dice.size(kMostWidth));
  }
  // Nothing at all to compute is legal, and rare enough to leave time for the rest.
  if (!dice.one_in(50)) {
    layer.widths.back() = std::max<std::int64_t>(layer.widths.back(), 1 + dice.below(9));
  }
  if (slices > 1 && dice.one_in(4)) {
    layer.widths.assign(layer.widths.size(), layer.widths.back());
  }
  layer.offset_start = dice.one_of(std::array<std::int64_t, 6>{0, 0, 0, 1, 3, 8});
  return layer;
}

// Rows farther apart than they are long.
void draw_strides(Dice& dice, LayerShape& layer) {
  const std::int64_t columns =
      std::accumulate(layer.widths.begin(), layer.widths.end(), layer.offset_start);
  layer.x_stride = layer.in_features + dice.one_of(std::array<std::int64_t, 5>{0, 0, 1, 8, 13});
  layer.y_stride = columns + dice.one_of(std::array<std::int64_t, 5>{0, 0, 1, 5, 8});
}

std::int64_t random_rank(Dice& dice) { return dice.one_in(8) ? 0 : dice.size(kMostRank); }

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

std::int64_t& largest(std::vector<std::int64_t>& values) {
  return *std::max_element(values.begin(), values.end());
}

bool affordable(const Case& spec) {
  const LayerShape& layer = spec.layer;
  const auto slices = static_cast<std::int64_t>(layer.widths.size());
  const std::int64_t columns =
      std::accumulate(layer.widths.begin(), layer.widths.end(), std::int64_t{0});
  const std::int64_t tokens =
      std::accumulate(spec.batch.prefill.begin(), spec.batch.prefill.end(), spec.batch.decode);
  const std::int64_t of_lane = slices * layer.in_features + columns;
  const std::int64_t rank = std::max<std::int64_t>(1, largest_rank(spec.adapters.rank));
  return spec.adapters.slots * rank * of_lane <= kMostWeights &&
         tokens * rank * of_lane <= kMostProducts;
}

// Halves one dimension, rounded up, so that a size one over a power of two stays one over.
void halve(Case& spec, std::int64_t dimension) {
  const auto half = [](std::int64_t& value) { value -= value / 2; };
  RankLaw& ranks = spec.adapters.rank;
  switch (dimension) {
    case 0:
      half(spec.layer.in_features);
      break;
    case 1:
      half(largest(spec.layer.widths));
      break;
    case 2:
      if (ranks.shares.empty()) {
        half(largest(ranks.list));
      } else if (ranks.shares.back().first > ranks.shares.front().first + 1) {
        ranks.shares.back().first -= (ranks.shares.back().first - ranks.shares.front().first) / 2;
      } else {
        ranks.shares.front().first /= 2;
      }
      break;
    case 3:
      if (spec.batch.prefill.empty() || largest(spec.batch.prefill) < spec.batch.decode) {
        half(spec.batch.decode);
      } else {
        half(largest(spec.batch.prefill));
      }
      break;
    default:
      // At most one rank and one scale for each slot.
      spec.adapters.slots = std::max({spec.adapters.slots - spec.adapters.slots / 2,
                                      static_cast<std::int64_t>(ranks.list.size()),
                                      static_cast<std::int64_t>(spec.adapters.scale.size())});
  }
}

// Which dimension gives way is drawn too: every one of them gets its large values.
void make_affordable(Dice& dice, Case& spec) {
  while (!affordable(spec)) {
    halve(spec, dice.below(5));
  }
}

// Drawn from numbers of its own: the cases around it are the same as without.
void make_vast(Dice dice, Case& spec) {
  const std::int64_t vast = kVast + 1 + dice.below(4000);
  spec.layer.in_features = dice.size(8);
  spec.layer.widths = {dice.size(8)};
  spec.adapters.slots = 1 + dice.below(3);
  spec.adapters.rank = {};
  spec.adapters.rank.list = {dice.size(4)};
  spec.adapters.scale.resize(1);
  spec.batch.decode = 1 + dice.below(4);
  spec.batch.prefill.clear();
  switch (dice.below(4)) {
    case 0:
      spec.layer.in_features = vast;
      break;
    case 1:
      spec.layer.widths = {vast};
      break;
    case 2:
      spec.batch.decode = vast;
      break;
    default:
      spec.batch.prefill = {vast, dice.size(kMostTokens)};  // one group of so many rows
  }
}

// As make_vast, of slots, where a batch can use them all.
void make_many_slots(Dice dice, Case& spec) {
  spec.layer.in_features = dice.size(16);
  spec.layer.widths = {dice.size(16)};
  spec.adapters.slots = kManySlots + dice.below(200);
  spec.adapters.rank = {};
  spec.adapters.rank.list = {dice.size(4), dice.below(4)};
  spec.batch.decode = kManySlots + dice.below(kMostTokens);
  spec.batch.prefill.clear();
}

// One of the scales is far from 1, or nothing.
void draw_far_scale(Dice dice, Case& spec) {
  std::vector<double>& scales = spec.adapters.scale;
  scales[static_cast<std::size_t>(dice.below(static_cast<std::int64_t>(scales.size())))] =
      dice.one_of(std::array<double, 6>{0.0, 0.0, 8.0, -32.0, 700.0, 0.002});
}

void draw_who_uses_what(Dice& dice, Case& spec) {
  const std::int64_t slots = spec.adapters.slots;
  spec.skew = random_law(dice, slots);
  spec.prefill_skew = dice.coin() ? spec.skew : random_law(dice, slots);
  spec.no_adapter = dice.one_of(std::array<double, 8>{0, 0, 0, 0.1, 0.25, 0.5, 0.9, 1});
  spec.order =
      dice.one_of(std::array<Order, 3>{Order::kShuffled, Order::kSorted, Order::kAsArrived});
  const auto sequences = spec.batch.decode + static_cast<std::int64_t>(spec.batch.prefill.size());
  if (dice.one_in(4) && spec.no_adapter == 0 && sequences > 0 && reaches_all_slots(spec.skew) &&
      reaches_all_slots(spec.prefill_skew)) {
    spec.adapters.active = 1 + dice.below(std::min(slots, sequences));
  }
}

// What a launch is captured for; from numbers of its own, as make_vast.
void draw_limits(Dice dice, Case& spec) {
  if (!dice.one_in(4)) {
    return;
  }
  const std::int64_t slots = spec.adapters.slots;
  spec.plan.max_slots = dice.coin() ? slots : 1 + dice.below(slots);
  const std::int64_t tokens =
      std::accumulate(spec.batch.prefill.begin(), spec.batch.prefill.end(), spec.batch.decode);
  spec.plan.max_tokens = dice.one_in(4) ? tokens + 1 + dice.below(kMostTokens) : 0;
}

}  // namespace

Case random_case(std::uint64_t seed, std::uint64_t index) {
  Dice dice(seed, index);
  Case spec;
  spec.id = "random-" + std::to_string(seed) + "-" + std::to_string(index);
  spec.scenario = spec.id;
  spec.op = dice.one_of(std::array<Op, 6>{Op::kShrink, Op::kExpand, Op::kLinear, Op::kLinear,
                                          Op::kEmbedding, Op::kLogits});
  spec.dtype = dice.one_of(std::array<Dtype, 3>{Dtype::kBf16, Dtype::kFp16, Dtype::kFp32});
  spec.intermediate = dice.coin() ? Dtype::kFp32 : spec.dtype;
  spec.scale_at = spec.op == Op::kEmbedding || dice.coin() ? ScaleAt::kExpand : ScaleAt::kShrink;
  spec.add_inputs = !dice.one_in(4);
  spec.layer = random_layer(dice, spec.op);
  spec.adapters = random_adapters(dice);
  spec.adapters.bias = spec.adapters.bias && has_expand(spec.op);
  spec.batch = random_batch(dice);
  make_affordable(dice, spec);
  if (Dice vast(seed, index, kVastStream); vast.one_in(kOneVastIn)) {
    make_vast(vast, spec);
  }
  if (Dice many(seed, index, kManySlotsStream); many.one_in(kOneManySlotsIn)) {
    make_many_slots(many, spec);
  }
  if (Dice far(seed, index, kScaleCaseStream); far.one_in(kOneFarScaleIn)) {
    draw_far_scale(far, spec);
  }
  draw_strides(dice, spec.layer);
  spec.adapters.max_rank = std::max<std::int64_t>(1, largest_rank(spec.adapters.rank)) +
                           dice.one_of(std::array<std::int64_t, 4>{0, 0, 0, 5});
  draw_who_uses_what(dice, spec);
  draw_limits({seed, index, kLimitsStream}, spec);
  spec.seed = seed + index;
  spec.measure.enabled = false;
  return spec;
}

}  // namespace lora_bench
