#include "verify/random_case.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>

#include "scenario/schema.h"
#include "verify/random_parts.h"

namespace lora_bench {
namespace {

constexpr std::uint64_t kFarStream = 0x666172ULL << 32;
constexpr std::uint64_t kLimitsStream = 0x6C696D69ULL << 32;
constexpr std::uint64_t kPaddingStream = 0x70616464ULL << 32;
constexpr std::uint64_t kPlanFormStream = 0x706c616eULL << 32;
constexpr std::uint64_t kRanksStream = 0x72616e6bULL << 32;
constexpr std::uint64_t kScaleCaseStream = 0x7363616cULL << 32;
constexpr std::uint64_t kSemanticsStream = 0x73656d61ULL << 32;
constexpr std::uint64_t kLayoutStream = 0x6c61796fULL << 32;
constexpr std::uint64_t kTilesStream = 0x74696c65ULL << 32;
constexpr std::uint64_t kWeightsStream = 0x77656967ULL << 32;
constexpr std::int64_t kOneFarScaleIn = 5;
constexpr std::int64_t kManyRanksIn = 6;

// What a case may cost, so that hundreds take seconds: elements of all weights, and products of
// one linear op.
struct Budget {
  std::int64_t weights = std::int64_t{1} << 17;
  std::int64_t products = std::int64_t{1} << 20;
};

// Sizes of cases of which none is far.
constexpr std::int64_t kMostFeatures = 2100;
constexpr std::int64_t kMostWidth = 600;
constexpr std::int64_t kMostSlices = 8;

// A case may have sizes up to what a scenario takes, but for K and N, of which 2^20 must do: of
// three cases in four one of these is far, of every third of them two are.
constexpr std::int64_t kMostFarFeatures = std::int64_t{1} << 20;
constexpr Budget kFarBudget{std::int64_t{1} << 22, std::int64_t{1} << 21};
constexpr std::int64_t kNoneFarIn = 4;
constexpr std::int64_t kTwoFarIn = 3;

enum class Dimension : std::uint8_t { kFeatures, kColumns, kRank, kTokens, kSlots, kSlices };

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
  layer.offset_start = dice.one_of(std::array<std::int64_t, 9>{0, 0, 0, 1, 3, 8, 64, 257, 4096});
  return layer;
}

// Rows farther apart than they are long. Columns before the first slice are few where rows are
// many: y is to stay small.
void draw_strides(Dice& dice, LayerShape& layer, std::int64_t tokens) {
  constexpr std::int64_t kMostBefore = std::int64_t{1} << 20;
  constexpr std::int64_t kFewBefore = 8;
  layer.offset_start = std::min(
      layer.offset_start, std::max(kFewBefore, kMostBefore / std::max<std::int64_t>(tokens, 1)));
  const std::int64_t columns =
      std::accumulate(layer.widths.begin(), layer.widths.end(), layer.offset_start);
  layer.x_stride = layer.in_features + dice.one_of(std::array<std::int64_t, 5>{0, 0, 1, 8, 13});
  layer.y_stride = columns + dice.one_of(std::array<std::int64_t, 5>{0, 0, 1, 5, 8});
}

std::int64_t& largest(std::vector<std::int64_t>& values) {
  return *std::max_element(values.begin(), values.end());
}

bool affordable(const Case& spec, const Budget& budget) {
  const LayerShape& layer = spec.layer;
  const auto slices = static_cast<std::int64_t>(layer.widths.size());
  const std::int64_t columns =
      std::accumulate(layer.widths.begin(), layer.widths.end(), std::int64_t{0});
  const std::int64_t of_lane = slices * layer.in_features + columns;
  const std::int64_t rank = std::max<std::int64_t>(1, largest_rank(spec.adapters.rank));
  return spec.adapters.slots * rank * of_lane <= budget.weights &&
         tokens_of(spec) * rank * of_lane <= budget.products;
}

// Halves one dimension, rounded up, so that a size one over a power of two stays one over.
void halve(Case& spec, Dimension dimension) {
  const auto half = [](std::int64_t& value) { value -= value / 2; };
  RankLaw& ranks = spec.adapters.rank;
  switch (dimension) {
    case Dimension::kFeatures:
      half(spec.layer.in_features);
      break;
    case Dimension::kColumns:
      half(largest(spec.layer.widths));
      break;
    case Dimension::kRank:
      if (ranks.shares.empty()) {
        half(largest(ranks.list));
      } else if (ranks.shares.back().first > ranks.shares.front().first + 1) {
        ranks.shares.back().first -= (ranks.shares.back().first - ranks.shares.front().first) / 2;
      } else {
        ranks.shares.front().first /= 2;
      }
      break;
    case Dimension::kTokens:
      if (spec.batch.prefill.empty() || largest(spec.batch.prefill) < spec.batch.decode) {
        half(spec.batch.decode);
      } else {
        half(largest(spec.batch.prefill));
      }
      break;
    case Dimension::kSlots:
      // At most one rank and one scale for each slot.
      spec.adapters.slots = std::max({spec.adapters.slots - spec.adapters.slots / 2,
                                      static_cast<std::int64_t>(ranks.list.size()),
                                      static_cast<std::int64_t>(spec.adapters.scale.size())});
      break;
    case Dimension::kSlices:
      break;  // what they cost is K and N
  }
}

// Which dimension gives way is drawn too: every one of them gets its large values. Those that are
// `far` give way when nothing else can.
void make_affordable(Dice& dice, Case& spec, const Budget& budget,
                     const std::vector<Dimension>& far = {}) {
  constexpr std::int64_t kInVain = 64;
  constexpr std::array<Dimension, 5> kHalved{Dimension::kFeatures, Dimension::kColumns,
                                             Dimension::kRank, Dimension::kTokens,
                                             Dimension::kSlots};
  for (std::int64_t tries = 0; !affordable(spec, budget); ++tries) {
    const Dimension dimension = dice.one_of(kHalved);
    const bool is_far = std::find(far.begin(), far.end(), dimension) != far.end();
    if (!is_far || tries >= kInVain) {
      halve(spec, dimension);
    }
  }
}

// One group of so many rows, so many of one row each, or half and half; logits take one row of a
// sequence.
void draw_far_tokens(Dice& dice, Case& spec) {
  const std::int64_t tokens = dice.far(kMostTokens, kMaxTokens);
  spec.batch = {.decode = tokens, .prefill = {}};
  const std::int64_t form = spec.op == Op::kLogits ? 0 : dice.below(3);
  if (form > 0) {
    spec.batch.decode = form == 1 ? 0 : tokens / 2;
    spec.batch.prefill = {tokens - spec.batch.decode};
    if (tokens < kMaxTokens - kMostTokens && dice.coin()) {
      spec.batch.prefill.push_back(dice.size(kMostTokens));
    }
  }
}

// What every slice costs gives way to what is far.
void keep_few_slices(Case& spec, std::int64_t cost_of_slice) {
  std::vector<std::int64_t>& widths = spec.layer.widths;
  const std::int64_t most = std::max<std::int64_t>(1, kFarBudget.products / 2 / cost_of_slice);
  widths.resize(static_cast<std::size_t>(std::min(most, std::ssize(widths))));
  widths.back() = std::max<std::int64_t>(widths.back(), 1);
}

void draw_far(Dice& dice, Case& spec, Dimension dimension) {
  constexpr std::int64_t kLeastFarFeatures = 512;
  switch (dimension) {
    case Dimension::kFeatures:
      spec.layer.in_features = dice.far(kLeastFarFeatures, kMostFarFeatures);
      keep_few_slices(spec, spec.layer.in_features);
      break;
    case Dimension::kColumns:
      largest(spec.layer.widths) = dice.far(kLeastFarFeatures, kMostFarFeatures);
      break;
    case Dimension::kRank:
      spec.adapters.rank = {};
      spec.adapters.rank.list = {dice.far(kMostRank / 4, kMaxRank)};
      if (spec.adapters.slots > 1 && dice.coin()) {
        spec.adapters.rank.list.push_back(random_rank(dice));
      }
      break;
    case Dimension::kTokens:
      draw_far_tokens(dice, spec);
      keep_few_slices(spec, tokens_of(spec));
      break;
    case Dimension::kSlots:
      spec.adapters.slots = dice.far(kMostSlots, kMaxSlots);
      if (spec.adapters.slots <= 2 * kMostTokens && dice.coin()) {  // as many rows as use them all
        spec.batch = {.decode = spec.adapters.slots + dice.below(kMostTokens), .prefill = {}};
      }
      break;
    case Dimension::kSlices:
      spec.layer.widths.resize(static_cast<std::size_t>(dice.far(kMostSlices, kMaxSlices)));
      for (std::int64_t& width : spec.layer.widths) {
        width = dice.one_in(7) ? 0 : dice.size(kMostWidth / 8);
      }
      spec.layer.widths.back() = 1 + dice.below(9);
      break;
  }
}

// Drawn from numbers of its own: the cases around it are the same as without. Returns whether it
// did anything.
bool make_far(Dice dice, Case& spec) {
  constexpr std::array<Dimension, 7> kWeighted{
      Dimension::kTokens, Dimension::kTokens,   Dimension::kSlots,  Dimension::kRank,
      Dimension::kSlices, Dimension::kFeatures, Dimension::kColumns};
  if (dice.one_in(kNoneFarIn)) {
    return false;
  }
  std::vector<Dimension> far;
  const std::int64_t wanted = dice.one_in(kTwoFarIn) ? 2 : 1;
  for (std::int64_t turn = 0; turn < wanted; ++turn) {
    Dimension dimension = dice.one_of(kWeighted);
    if (dimension == Dimension::kSlices && spec.op == Op::kLogits) {
      dimension = Dimension::kColumns;
    }
    draw_far(dice, spec, dimension);
    far.push_back(dimension);
  }
  // Somebody has something to do: such cases are too few to spend on nothing.
  if (tokens_of(spec) == 0) {
    spec.batch.decode = 1 + dice.below(8);
  }
  if (largest_rank(spec.adapters.rank) == 0) {
    spec.adapters.rank = {};
    spec.adapters.rank.list = {1 + dice.below(8)};
  }
  make_affordable(dice, spec, kFarBudget, far);
  return true;
}

// One of the scales is far from 1, or nothing.
void draw_far_scale(Dice dice, Case& spec) {
  std::vector<double>& scales = spec.adapters.scale;
  scales[static_cast<std::size_t>(dice.below(static_cast<std::int64_t>(scales.size())))] =
      dice.one_of(std::array<double, 10>{0.0, 0.0, 8.0, -32.0, 700.0, 0.002, 4096.0, -12000.0, 1e-5,
                                         -0x1p-20});
}

// As many ranks as there are slots, up to a limit; none above those that the case can afford.
void draw_many_ranks(Dice dice, AdapterSpec& adapters) {
  constexpr std::int64_t kMostRanks = 64;
  const std::int64_t largest = largest_rank(adapters.rank);
  if (!dice.one_in(kManyRanksIn) || adapters.slots < 2 || largest < 2) {
    return;
  }
  adapters.rank = {};
  for (std::int64_t i = std::min(adapters.slots, kMostRanks); i > 0; --i) {
    adapters.rank.list.push_back(dice.one_in(8) ? 0 : dice.size(largest));
  }
  adapters.rank.list.front() = largest;
}

// In one case of three each size that is larger than a tile of 8 to 128 drawn for it becomes a
// multiple of that: of these one in 128 comes by chance. None grows.
void cut_to_tiles(Dice dice, Case& spec) {
  if (!dice.one_in(3)) {
    return;
  }
  const auto cut = [&](std::int64_t& size) {
    const std::int64_t tile = std::int64_t{8} << dice.below(5);
    size -= size > tile ? size % tile : 0;
  };
  cut(spec.layer.in_features);
  cut(spec.batch.decode);
  for (auto* sizes : {&spec.layer.widths, &spec.adapters.rank.list, &spec.batch.prefill}) {
    std::for_each(sizes->begin(), sizes->end(), cut);
  }
}

// What a launch is captured for; from numbers of its own, as make_vast.
void draw_limits(Dice dice, Case& spec) {
  if (!dice.one_in(4)) {
    return;
  }
  const std::int64_t slots = spec.adapters.slots;
  spec.plan.max_slots = dice.coin() ? slots : 1 + dice.below(slots);
  const std::int64_t tokens = tokens_of(spec) + 1 + dice.below(kMostTokens);
  spec.plan.max_tokens = dice.one_in(4) && tokens <= kMaxTokens ? tokens : 0;
}

// What is asked beyond the plain op; from numbers of its own, as make_vast.
void draw_semantics(Dice dice, Case& spec) {
  if (!spec.add_inputs && has_expand(spec.op) && dice.coin()) {
    spec.idle_rows = IdleRows::kZeroed;
  }
  if (dice.one_in(6)) {
    spec.adapters.dtype =
        dice.one_of(std::array<Dtype, 3>{Dtype::kBf16, Dtype::kFp16, Dtype::kFp32});
  }
  if (spec.adapters.bias && dice.one_in(3)) {
    for (std::int64_t slice = 0; slice < std::ssize(spec.layer.widths); ++slice) {
      if (dice.coin()) {
        spec.adapters.bias_slices.push_back(slice);
      }
    }
  }
  spec.adapters.rank0_bias = spec.adapters.bias && dice.one_in(4);
  spec.inputs = has_shrink(spec.op) && spec.layer.widths.size() > 1 && dice.one_in(5)
                    ? Inputs::kPerSlice
                    : Inputs::kShared;
  spec.shrink_adds = spec.op == Op::kShrink && dice.one_in(4);
}

// Zero, or a stride that leaves a gap behind what a row has.
std::int64_t random_stride(Dice& dice, std::int64_t least) {
  return dice.coin() ? 0 : least + dice.one_of(std::array<std::int64_t, 5>{0, 1, 5, 8, 64});
}

// Where operands lie; from numbers of its own, as make_vast.
void draw_layout(Dice dice, Case& spec) {
  constexpr std::int64_t kMostElements = std::int64_t{1} << 22;  // a gap or a column may be 64
  const std::int64_t rows = std::max<std::int64_t>(tokens_of(spec), 1);
  const bool few =
      rows * std::max(std::ssize(spec.layer.widths) * 64, 8 * spec.layer.in_features) <=
      kMostElements;
  if (!few || !dice.one_in(6)) {
    return;
  }
  AdapterSpec& adapters = spec.adapters;
  LayerShape& layer = spec.layer;
  adapters.placing =
      dice.one_of(std::array{Placing::kSeparate, Placing::kStacked, Placing::kPacked});
  adapters.a_stride = random_stride(dice, layer.in_features);
  adapters.b_stride = random_stride(dice, adapters.max_rank);
  const bool apart = adapters.placing == Placing::kSeparate;
  layer.h_stride = random_stride(dice, (apart ? 1 : std::ssize(layer.widths)) * adapters.max_rank);
  if (dice.one_in(3)) {
    const std::int64_t slack = layer.x_stride - extent_of_x(layer);
    layer.x_column_stride = dice.one_of(std::array<std::int64_t, 3>{2, 3, 8});
    layer.x_stride = extent_of_x(layer) + slack;
  }
}

// In which arrays the plan is handed over; from numbers of its own, as make_vast.
void draw_plan_form(Dice dice, Case& spec) {
  if (!dice.one_in(4)) {
    return;
  }
  PlanSpec& plan = spec.plan;
  plan.max_slots = 0;
  plan.form = dice.coin() ? PlanForm::kKernel : PlanForm::kChunked;
  plan.grid = dice.one_in(3) ? PlanGrid::kActive : PlanGrid::kSlots;
  if (plan.form == PlanForm::kChunked) {
    plan.largest_chunk = std::int64_t{16} << dice.below(4);
    plan.idle_segments = dice.coin();
  }
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
  make_affordable(dice, spec, {});
  const bool is_far = make_far({seed, index, kFarStream}, spec);
  if (Dice far(seed, index, kScaleCaseStream); far.one_in(kOneFarScaleIn)) {
    draw_far_scale(far, spec);
  }
  draw_many_ranks({seed, index, kRanksStream}, spec.adapters);
  cut_to_tiles({seed, index, kTilesStream}, spec);
  draw_strides(dice, spec.layer, tokens_of(spec));
  spec.adapters.max_rank =
      std::min<std::int64_t>(kMaxRank, std::max<std::int64_t>(1, largest_rank(spec.adapters.rank)) +
                                           dice.one_of(std::array<std::int64_t, 4>{0, 0, 0, 5}));
  draw_who_uses_what(dice, spec, is_far);
  draw_limits({seed, index, kLimitsStream}, spec);
  draw_plan_form({seed, index, kPlanFormStream}, spec);
  draw_semantics({seed, index, kSemanticsStream}, spec);
  draw_weights({seed, index, kWeightsStream}, spec);  // from numbers of its own, as make_vast
  draw_layout({seed, index, kLayoutStream}, spec);
  if (Dice padding(seed, index, kPaddingStream); padding.one_in(8)) {
    spec.adapters.padding = Padding::kZeros;
  }
  spec.seed = seed + index;
  spec.measure.enabled = false;
  return spec;
}

Case fuzz_case(std::uint64_t seed, std::uint64_t index) {
  constexpr std::uint64_t kOneLayerIn = 8;
  return index % kOneLayerIn == kOneLayerIn - 1 ? random_layer_case(seed, index)
                                                : random_case(seed, index);
}

}  // namespace lora_bench
