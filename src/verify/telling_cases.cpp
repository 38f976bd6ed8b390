#include <string>
#include <utility>
#include <vector>

#include "verify/random_case.h"

namespace lora_bench {
namespace {

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

Case shrink_case(const std::string& id = "shrink-fp32", std::int64_t features = 257) {
  Case spec = plain_case(id);
  spec.op = Op::kShrink;
  spec.layer.in_features = features;
  return spec;
}

// Each asks one thing beyond the plain op.
std::vector<Case> semantics_cases() {
  Case zeroed = plain_case("overwrite-zeroed");
  zeroed.add_inputs = false;
  zeroed.idle_rows = IdleRows::kZeroed;
  zeroed.adapters.rank.list = {0, 4, 8};
  zeroed.no_adapter = 0.25;

  Case adding = shrink_case();
  adding.id = "shrink-adds";
  adding.shrink_adds = true;
  adding.adapters.rank.list = {8, 5, 8, 3};
  adding.no_adapter = 0.25;

  Case biased = plain_case("bias-of-some-slices");
  biased.layer.widths = {48, 33, 20};
  biased.layer.y_stride = 101;
  biased.adapters.rank.list = {8, 0, 3};
  biased.adapters.bias = true;
  biased.adapters.bias_slices = {0, 2};

  Case rank_zero = plain_case("rank-zero-bias");
  rank_zero.adapters.rank.list = {0, 4};
  rank_zero.adapters.bias = true;
  rank_zero.adapters.rank0_bias = true;

  Case other_dtype = plain_case("adapters-fp16");
  other_dtype.adapters.dtype = Dtype::kFp16;

  Case own_x = plain_case("own-inputs");
  own_x.layer.widths = {40, 24};
  own_x.inputs = Inputs::kPerSlice;

  Case packed = plain_case("packed-with-gaps");
  packed.layer.widths = {40, 24};
  packed.layer.x_column_stride = 2;
  packed.layer.x_stride = 2 * packed.layer.in_features;
  packed.layer.h_stride = 2 * packed.adapters.max_rank + 3;
  packed.adapters.placing = Placing::kPacked;
  packed.adapters.rank.list = {3, packed.adapters.max_rank};
  return {zeroed, adding, biased, rank_zero, other_dtype, own_x, packed};
}

// Weights of eight bits.
std::vector<Case> eight_bits_cases() {
  Case blocks = plain_case("eight-bits-blocks");
  blocks.layer.widths = {40, 24};
  blocks.weights = {Dtype::kE4m3, WeightsScale::kBlock, {8, 32}};

  Case channels = shrink_case("eight-bits-channels", 100);
  channels.weights = {Dtype::kE5m2, WeightsScale::kChannel, {}};

  Case tokens = shrink_case("eight-bits-tokens", 100);
  tokens.weights = channels.weights;
  tokens.activations = {Dtype::kE5m2, ActivationsScale::kToken, 0};

  Case groups = blocks;
  groups.id = "eight-bits-groups";
  groups.activations = {Dtype::kE4m3, ActivationsScale::kBlock, 32};
  groups.inputs = Inputs::kPerSlice;

  Case given = blocks;
  given.id = "eight-bits-given-h";
  given.op = Op::kExpand;
  given.scale_at = ScaleAt::kExpand;  // who scales in both halves is right here
  given.activations = {Dtype::kE5m2, ActivationsScale::kBlock, 3};

  Case hidden = blocks;
  hidden.id = "eight-bits-quantised-h";
  hidden.activations = {Dtype::kE4m3, ActivationsScale::kBlock, 3};
  hidden.intermediate = Dtype::kE4m3;
  hidden.adapters.rank.list = {4, hidden.adapters.max_rank};  // a group ends with padding

  Case powers = hidden;
  powers.id = "eight-bits-quantised-h-powers";
  powers.activations = {Dtype::kE5m2, ActivationsScale::kToken, 0};
  powers.quantiser.power_of_two = true;
  powers.quantiser.least_amax = 1000;
  // Of y a delta of nearly nothing says less.
  return {channels, blocks, tokens, groups, given, hidden, powers};
}

// Both products of a layer of experts, and the halves that read the route of a step.
std::vector<Case> experts_cases() {
  Case w13 = plain_case("experts-w13");
  w13.batch.decode = 8;
  w13.layer.widths = {40, 24};
  w13.adapters.slots = 3;
  w13.adapters.rank.list = {8, 5, 8};
  w13.no_adapter = 0.25;
  w13.experts.count = 5;
  w13.experts.top_k = 3;
  w13.experts.weight_at = WeightAt::kInput;
  w13.experts.missing = 0.2;

  Case w2 = w13;
  w2.id = "experts-w2";
  w2.layer.widths = {64};
  w2.experts.part = ExpertsPart::kW2;
  w2.experts.weight_at = WeightAt::kOutput;

  Case shrink = w13;
  shrink.id = "experts-shrink";
  shrink.op = Op::kShrink;

  Case expand = w2;
  expand.id = "experts-expand";
  expand.op = Op::kExpand;
  expand.scale_at = ScaleAt::kExpand;
  return {w13, w2, shrink, expand};
}

// Cases whose plan is handed over in a published form.
std::vector<Case> form_cases() {
  Case kernel = plain_case("kernel-form");
  kernel.plan.form = PlanForm::kKernel;
  kernel.no_adapter = 0.25;

  Case chunked = plain_case("chunked-form");
  chunked.plan.form = PlanForm::kChunked;
  chunked.plan.largest_chunk = 64;
  chunked.plan.idle_segments = true;
  chunked.batch.decode = 150;
  chunked.skew.kind = chunked.prefill_skew.kind = Skew::kUniform;
  chunked.no_adapter = 0.25;
  return {kernel, chunked};
}

// One size far beyond the others, which are small.
Case far_case(const std::string& id, std::int64_t features, std::vector<std::int64_t> widths,
              std::int64_t tokens, std::int64_t rank) {
  Case spec = plain_case(id);
  spec.layer.in_features = features;
  spec.layer.widths = std::move(widths);
  spec.batch.decode = tokens;
  spec.adapters.rank.list = {rank};
  spec.adapters.max_rank = rank;
  return spec;
}

std::vector<Case> far_cases() {
  Case slots = far_case("1100-slots", 8, {8}, 40, 2);
  slots.adapters.slots = 1100;
  slots.skew.kind = Skew::kUniform;
  std::vector<Case> cases{far_case("700-tokens", 12, {8}, 700, 3),
                          far_case("2500-tokens", 8, {6}, 2500, 2),
                          far_case("66000-tokens", 4, {4}, 66000, 2),
                          slots,
                          far_case("rank-700", 12, {12}, 6, 700),
                          far_case("rank-1500", 8, {8}, 5, 1500),
                          far_case("12-slices", 20, std::vector<std::int64_t>(12, 4), 8, 4),
                          far_case("40-slices", 20, std::vector<std::int64_t>(40, 3), 6, 3),
                          far_case("6000-of-k", 6000, {8}, 6, 4),
                          far_case("6000-columns", 8, {6000}, 6, 4)};
  for (Case& spec : cases) {
    spec.prefill_skew = spec.skew;
  }
  return cases;
}

}  // namespace

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

  Case half = plain_case("fp16");
  half.dtype = Dtype::kFp16;

  std::vector<Case> cases{packed_case(), idle_slots_case(), narrow,        gap,  uneven,
                          nothing,       overwrite,         shrink_case(), wide, half};
  for (const std::vector<Case>& more :
       {semantics_cases(), form_cases(), eight_bits_cases(), experts_cases(), far_cases()}) {
    cases.insert(cases.end(), more.begin(), more.end());
  }
  return cases;
}

}  // namespace lora_bench
