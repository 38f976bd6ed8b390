#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <vector>

#include "layers/layer_problem.h"
#include "scenario/scenario.h"
#include "verify/random_case.h"
#include "verify/random_parts.h"

namespace lora_bench {
namespace {

constexpr std::uint64_t kLayerStream = 0x6c617965ULL << 32;
constexpr std::uint64_t kWeightsOfLayerStream = 0x776c6179ULL << 32;

// Products of a base in all its shards, so that hundreds of cases take seconds.
constexpr std::int64_t kMostProducts = std::int64_t{1} << 20;
constexpr std::int64_t kMostLanes = 64;
constexpr std::int64_t kHeadColumns =
    128;  // where a scenario does not say how many heads there are

// Outputs whose widths `tp` shards divide; one of them may have no columns.
std::vector<std::int64_t> random_widths(Dice& dice, const LayerDescription& kind, std::int64_t tp) {
  constexpr std::int64_t kMostBlocks = 5;
  const std::int64_t most = std::min(kind.most_blocks, kMostBlocks);
  std::vector<std::int64_t> widths;
  for (std::int64_t blocks = kind.least_blocks + dice.below(most - kind.least_blocks + 1);
       blocks > 0; --blocks) {
    const std::int64_t width = dice.size(kind.vocabulary ? 200 : 40);
    widths.push_back(kind.vocabulary ? width : tp * width);
  }
  if (widths.size() > 1 && dice.one_in(5)) {
    widths[static_cast<std::size_t>(dice.below(std::ssize(widths)))] = 0;
  }
  return widths;
}

// q, k and v of heads that `tp` shards divide or share; heads of v may be of another size.
void draw_heads(Dice& dice, Case& spec) {
  LayerSetup& setup = spec.setup;
  setup.tp = dice.one_of(std::array<std::int64_t, 4>{1, 2, 4, 8});
  setup.kv_heads = dice.one_of(std::array<std::int64_t, 3>{1, 2, 4});
  const std::int64_t head = dice.size(16);
  const std::int64_t of_v = dice.one_in(3) ? dice.size(24) : dice.one_in(6) ? 0 : head;
  setup.v_head_size = of_v > 0 && dice.coin() ? of_v : 0;
  spec.layer.widths = {head * std::max(setup.tp, setup.kv_heads) * (1 + dice.below(3)),
                       head * setup.kv_heads, of_v * setup.kv_heads};
}

void draw_shape(Dice& dice, Case& spec) {
  LayerSetup& setup = spec.setup;
  const LayerDescription& kind = description_of(setup.kind);
  setup.tp = dice.one_of(std::array<std::int64_t, 6>{1, 2, 2, 3, 4, 8});
  setup.fully_sharded = kind.full.has_value() && dice.coin();
  spec.layer.name = "custom";
  spec.layer.in_features = dice.size(300);
  if (kind.heads) {
    draw_heads(dice, spec);
  } else {
    spec.layer.widths = random_widths(dice, kind, setup.tp);
    setup.kv_heads = spec.layer.widths.size() > 1 ? spec.layer.widths[1] / kHeadColumns : 0;
  }
  if (kind.base == Cut::kInputs && !kind.vocabulary) {
    spec.layer.in_features = rounded_up(spec.layer.in_features, setup.tp);
  }
}

// What adapters of a kind with an A and B for each output leave alone, or bring for several.
void draw_missing(Dice& dice, Case& spec) {
  const std::int64_t blocks = std::ssize(spec.layer.widths);
  if (description_of(spec.setup.kind).joint || blocks < 2) {
    return;
  }
  if (takes_packed(spec.setup.kind) && dice.one_in(3)) {
    for (std::int64_t left = blocks; left > 0; left -= spec.setup.packed.back()) {
      spec.setup.packed.push_back(1 + dice.below(left));
    }
    return;
  }
  spec.setup.missing_slices = dice.one_in(3);
  if (spec.setup.missing_slices || dice.coin()) {
    return;
  }
  for (std::int64_t lists = 1 + dice.below(std::min<std::int64_t>(spec.adapters.slots, 4));
       lists > 0; --lists) {
    std::vector<std::int64_t>& list = spec.setup.missing.emplace_back();
    for (std::int64_t block = 0; block < blocks; ++block) {
      if (dice.one_in(3)) {
        list.push_back(block);
      }
    }
  }
}

void draw_setup(Dice& dice, Case& spec) {
  LayerSetup& setup = spec.setup;
  const LayerDescription& kind = description_of(setup.kind);
  const bool logits = setup.kind == LayerKind::kLogits;
  const bool terms = kind.y == Exchange::kReduce && !kind.looks_up;
  setup.bias = !kind.looks_up && dice.coin();
  setup.skip_bias = setup.bias && dice.one_in(4);
  setup.gather_output = kind.may_gather && dice.one_in(3);
  setup.input_split = terms && dice.one_in(3);
  setup.reduce_results = !terms || !dice.one_in(3);
  setup.extra_vocabulary = kind.looks_up && dice.coin() ? dice.size(20) : 0;
  if (logits) {
    setup.padding = dice.one_of(std::array<std::int64_t, 4>{1, 8, 64, 64});
    setup.soft_cap = dice.one_of(std::array<double, 4>{0, 0, 2, 30});
    setup.logit_scale = dice.one_of(std::array<double, 4>{1, 1, 0.5, 0.7});
    setup.gather_to = dice.one_in(3) ? GatherTo::kFirst : GatherTo::kAll;
  }
  setup.overlap =
      dice.one_of(std::array<Overlap, 6>{Overlap::kAuto, Overlap::kAuto, Overlap::kSerial,
                                         Overlap::kShrink, Overlap::kDelta, Overlap::kEpilogue});
  if (overlap_fault(sharded_layer(spec), Comm::kNone, setup.overlap)) {
    setup.overlap = Overlap::kAuto;
  }
}

void draw_adapters_of_layer(Dice& dice, Case& spec) {
  AdapterSpec& adapters = spec.adapters;
  adapters = random_adapters(dice);
  adapters.slots =
      std::max<std::int64_t>(std::min<std::int64_t>(adapters.slots, 9),
                             std::max(std::ssize(adapters.rank.list), std::ssize(adapters.scale)));
  for (std::int64_t& rank : adapters.rank.list) {
    rank = std::min(rank, kMostLanes);
  }
  if (!adapters.rank.shares.empty()) {
    adapters.rank = {.list = {dice.size(kMostLanes)}, .shares = {}};
  }
  const std::int64_t lanes = std::max<std::int64_t>(1, largest_rank(adapters.rank));
  adapters.max_rank =
      spec.setup.fully_sharded ? rounded_up(lanes, spec.setup.tp) : lanes + dice.below(3);
}

void make_cheap(Case& spec) {
  const std::int64_t columns =
      std::accumulate(spec.layer.widths.begin(), spec.layer.widths.end(), std::int64_t{0});
  while (tokens_of(spec) * spec.layer.in_features * columns * spec.setup.tp > kMostProducts) {
    spec.batch.decode /= 2;
    for (std::int64_t& chunk : spec.batch.prefill) {
      chunk -= chunk / 2;
    }
    if (spec.batch.decode == 0 && !spec.batch.prefill.empty()) {
      spec.batch.prefill.pop_back();
      spec.batch.decode = 1;
    }
  }
}

}  // namespace

Case random_layer_case(std::uint64_t seed, std::uint64_t index) {
  Dice dice(seed, index, kLayerStream);
  Case spec;
  spec.id = "random-layer-" + std::to_string(seed) + "-" + std::to_string(index);
  spec.scenario = spec.id;
  spec.op = Op::kLayer;
  spec.setup.kind =
      layer_descriptions()[static_cast<std::size_t>(dice.below(std::ssize(layer_descriptions())))]
          .kind;
  spec.dtype = dice.one_of(std::array<Dtype, 3>{Dtype::kBf16, Dtype::kFp16, Dtype::kFp32});
  spec.intermediate = dice.coin() ? Dtype::kFp32 : spec.dtype;
  const bool looks_up = description_of(spec.setup.kind).looks_up;
  spec.scale_at = looks_up || dice.coin() ? ScaleAt::kExpand : ScaleAt::kShrink;
  draw_shape(dice, spec);
  draw_setup(dice, spec);
  draw_adapters_of_layer(dice, spec);
  draw_missing(dice, spec);
  spec.batch = random_batch(dice);
  make_cheap(spec);
  draw_who_uses_what(dice, spec, false);
  draw_weights({seed, index, kWeightsOfLayerStream}, spec);
  if (spec.weights.scale == WeightsScale::kBlock && layer_fault(spec)) {
    spec.weights.scale = WeightsScale::kChannel;
    spec.weights.block.clear();
  }
  spec.layer.x_stride = spec.layer.in_features;
  spec.layer.y_stride = columns_of(spec.layer);
  spec.seed = seed + index;
  spec.measure.enabled = false;
  return spec;
}

}  // namespace lora_bench
