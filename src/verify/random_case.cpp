#include "verify/random_case.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>

#include "core/random.h"

namespace lora_bench {
namespace {

constexpr std::uint64_t kCaseStream = 0x63617365ULL;

class Dice {
 public:
  Dice(std::uint64_t seed, std::uint64_t index) : seed_(seed), stream_(kCaseStream + index) {}

  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(
        random_below(seed_, stream_, next_++, static_cast<std::uint64_t>(bound)));
  }
  template <typename Value, std::size_t kCount>
  Value one_of(const std::array<Value, kCount>& values) {
    return values[static_cast<std::size_t>(below(static_cast<std::int64_t>(kCount)))];
  }
  bool coin() { return below(2) == 1; }

 private:
  std::uint64_t seed_, stream_, next_ = 0;
};

LayerShape random_layer(Dice& dice, Op op) {
  LayerShape layer;
  layer.name = "custom";
  layer.in_features =
      dice.one_of(std::array<std::int64_t, 10>{1, 3, 7, 16, 32, 33, 64, 100, 128, 257});
  const bool one_slice = op == Op::kLogits || op == Op::kEmbedding;
  const std::int64_t slices = one_slice ? 1 : 1 + dice.below(5);
  for (std::int64_t slice = 0; slice < slices; ++slice) {
    layer.widths.push_back(
        dice.one_of(std::array<std::int64_t, 10>{0, 1, 7, 8, 16, 24, 33, 48, 64, 96}));
  }
  // The last slice has a width, so that there is something to compute.
  layer.widths.back() = std::max<std::int64_t>(layer.widths.back(), 5);
  layer.offset_start = dice.one_of(std::array<std::int64_t, 4>{0, 0, 3, 8});
  const std::int64_t columns =
      std::accumulate(layer.widths.begin(), layer.widths.end(), layer.offset_start);
  layer.x_stride = layer.in_features + dice.one_of(std::array<std::int64_t, 4>{0, 0, 1, 8});
  layer.y_stride = columns + dice.one_of(std::array<std::int64_t, 4>{0, 0, 1, 5});
  return layer;
}

AdapterSpec random_adapters(Dice& dice) {
  AdapterSpec adapters;
  adapters.slots = 1 + dice.below(9);
  const std::int64_t ranks = 1 + dice.below(4);
  for (std::int64_t i = 0; i < ranks; ++i) {
    adapters.rank.list.push_back(
        dice.one_of(std::array<std::int64_t, 10>{0, 1, 2, 3, 4, 8, 8, 16, 17, 32}));
  }
  const std::int64_t largest =
      *std::max_element(adapters.rank.list.begin(), adapters.rank.list.end());
  adapters.max_rank =
      std::max<std::int64_t>(1, largest) + dice.one_of(std::array<std::int64_t, 3>{0, 0, 5});
  const std::int64_t scales = 1 + dice.below(3);
  for (std::int64_t i = 0; i < scales; ++i) {
    adapters.scale.push_back(dice.one_of(std::array<double, 5>{0.5, 2.0, 1.0, 1.3, -0.7}));
  }
  adapters.bias = dice.coin();
  return adapters;
}

SkewLaw random_law(Dice& dice) {
  SkewLaw law;
  law.kind =
      dice.one_of(std::array<Skew, 7>{Skew::kIdentical, Skew::kDistinct, Skew::kUniform,
                                      Skew::kZipf, Skew::kHot, Skew::kOneVsRest, Skew::kBlocks});
  law.parameter = law.kind == Skew::kZipf ? 1.5 : 0.5;
  return law;
}

Case plain_case(const std::string& id) {
  Case spec;
  spec.scenario = "self-test";
  spec.id = id;
  spec.layer.name = "custom";
  spec.layer.in_features = 100;
  spec.layer.widths = {64};
  spec.batch.decode = 24;
  spec.adapters.slots = 4;
  spec.adapters.rank.list = {8};
  spec.adapters.max_rank = 8;
  spec.adapters.scale = {2.0, 0.5, 3.0, 1.5};
  spec.skew.kind = Skew::kDistinct;
  spec.prefill_skew = spec.skew;
  spec.verify.relations = true;
  return spec;
}

Case packed_case() {
  Case spec = plain_case("packed-bias-base-rows");
  spec.layer.widths = {48, 33, 33};
  spec.layer.offset_start = 3;
  spec.layer.x_stride = 107;
  spec.layer.y_stride = 122;
  spec.batch.prefill = {7, 3};
  spec.adapters.slots = 7;
  spec.adapters.active = 5;
  spec.adapters.rank.list = {8, 3, 8, 2, 5};
  spec.adapters.bias = true;
  spec.no_adapter = 0.25;
  return spec;
}

Case idle_slots_case() {
  Case spec = plain_case("idle-slots");
  spec.adapters.slots = 6;
  spec.adapters.active = 3;
  spec.skew.kind = Skew::kUniform;
  spec.prefill_skew = spec.skew;
  return spec;
}

Case shrink_case() {
  Case spec = plain_case("shrink-fp32");
  spec.op = Op::kShrink;
  spec.layer.in_features = 257;
  return spec;
}

}  // namespace

Case random_case(std::uint64_t seed, std::uint64_t index) {
  Dice dice(seed, index);
  Case spec = plain_case("random-" + std::to_string(seed) + "-" + std::to_string(index));
  spec.op = dice.one_of(std::array<Op, 6>{Op::kShrink, Op::kExpand, Op::kLinear, Op::kLinear,
                                          Op::kEmbedding, Op::kLogits});
  spec.dtype = dice.one_of(std::array<Dtype, 3>{Dtype::kBf16, Dtype::kFp16, Dtype::kFp32});
  spec.intermediate = dice.coin() ? Dtype::kFp32 : spec.dtype;
  spec.scale_at = spec.op == Op::kEmbedding || dice.coin() ? ScaleAt::kExpand : ScaleAt::kShrink;
  spec.add_inputs = dice.below(4) > 0;
  spec.layer = random_layer(dice, spec.op);
  spec.adapters = random_adapters(dice);
  spec.batch.decode = dice.one_of(std::array<std::int64_t, 8>{0, 1, 2, 3, 5, 8, 17, 24});
  for (std::int64_t chunk = dice.below(4); chunk > 0; --chunk) {
    spec.batch.prefill.push_back(1 + dice.below(12));
  }
  spec.skew = random_law(dice);
  spec.prefill_skew = dice.coin() ? spec.skew : random_law(dice);
  spec.no_adapter = dice.one_of(std::array<double, 5>{0, 0, 0.25, 0.5, 1});
  spec.order =
      dice.one_of(std::array<Order, 3>{Order::kShuffled, Order::kSorted, Order::kAsArrived});
  spec.seed = seed + index;
  return spec;
}

std::vector<Case> telling_cases() {
  Case narrow = plain_case("rank-32-scale-at-expand");
  narrow.adapters.rank.list = {32, 16, 32, 7};
  narrow.adapters.max_rank = 32;
  narrow.scale_at = ScaleAt::kExpand;

  Case gap = plain_case("empty-slice");
  gap.layer.widths = {32, 0, 24};
  gap.layer.y_stride = 60;

  Case uneven = plain_case("uneven-slices");
  uneven.layer.widths = {64, 16, 16};
  uneven.layer.y_stride = 110;

  Case nothing = plain_case("rank-zero");
  nothing.adapters.rank.list = {0, 4};

  Case overwrite = plain_case("overwrite");
  overwrite.add_inputs = false;

  Case wide = plain_case("fp32");
  wide.dtype = Dtype::kFp32;

  return {packed_case(), idle_slots_case(), narrow,        gap, uneven,
          nothing,       overwrite,         shrink_case(), wide};
}

}  // namespace lora_bench
