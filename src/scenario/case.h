#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/named.h"
#include "scenario/eight_bits.h"
#include "scenario/experts.h"

namespace lora_bench {

// kLayer is a whole layer, base product and all, of which a linear op is the adapters' part.
// The last two multiply nothing: kMetadata groups the rows of a step, before any other op can run,
// and kQuantise makes an x of eight bits with scales.
enum class Op : std::uint8_t {
  kShrink,
  kExpand,
  kLinear,
  kEmbedding,
  kLogits,
  kLayer,
  kMetadata,
  kQuantise
};
template <>
struct EnumNames<Op> {
  static constexpr std::array<std::string_view, 8> kNames{
      "shrink", "expand", "linear", "embedding", "logits", "layer", "metadata", "quantise"};
};
// The index arrays that an engine's kernels take a batch in; docs/plan.md says what each holds.
enum class Form : std::uint8_t { kKernel, kPrefill, kSampler, kEmbedding, kChunked, kAlign };
template <>
struct EnumNames<Form> {
  static constexpr std::array<std::string_view, 6> kNames{"kernel",    "prefill", "sampler",
                                                          "embedding", "chunked", "align"};
};
enum class ScaleAt : std::uint8_t { kShrink, kExpand };
template <>
struct EnumNames<ScaleAt> {
  static constexpr std::array<std::string_view, 2> kNames{"shrink", "expand"};
};
// What an op that overwrites y leaves there in rows that no adapter acts on: what was there, or
// zero in the columns of the slices.
enum class IdleRows : std::uint8_t { kKept, kZeroed };
template <>
struct EnumNames<IdleRows> {
  static constexpr std::array<std::string_view, 2> kNames{"kept", "zeroed"};
};
// Whether all slices have one x, or each its own.
enum class Inputs : std::uint8_t { kShared, kPerSlice };
template <>
struct EnumNames<Inputs> {
  static constexpr std::array<std::string_view, 2> kNames{"shared", "per_slice"};
};
enum class Order : std::uint8_t { kShuffled, kSorted, kAsArrived };
template <>
struct EnumNames<Order> {
  static constexpr std::array<std::string_view, 3> kNames{"shuffled", "sorted", "as-arrived"};
};

// What a base layer is to LoRA; src/layers says what each kind means.
enum class LayerKind : std::uint8_t {
  kReplicated,
  kColumn,
  kMergedColumn,
  kMergedColumnVariable,
  kQkv,
  kMergedQkv,
  kRow,
  kLogits,
  kVocabEmbedding,
};
template <>
struct EnumNames<LayerKind> {
  static constexpr std::array<std::string_view, 9> kNames{
      "replicated", "column", "merged_column", "merged_column_variable", "qkv",
      "merged_qkv", "row",    "logits",        "vocab_embedding"};
};

// What exchanges the results of shards while they are timed: nothing, each being timed alone on one
// device, or NCCL, each on a GPU of its own.
enum class Comm : std::uint8_t { kNone, kNccl };
template <>
struct EnumNames<Comm> {
  static constexpr std::array<std::string_view, 2> kNames{"none", "nccl"};
};

// Which shards end with gathered logits.
enum class GatherTo : std::uint8_t { kAll, kFirst };
template <>
struct EnumNames<GatherTo> {
  static constexpr std::array<std::string_view, 2> kNames{"all", "first"};
};

// How the adapters' part of a layer runs beside its base; src/layers says what each means.
enum class Overlap : std::uint8_t { kAuto, kSerial, kShrink, kDelta, kEpilogue, kFused };
template <>
struct EnumNames<Overlap> {
  static constexpr std::array<std::string_view, 6> kNames{"auto",  "serial",   "shrink",
                                                          "delta", "epilogue", "fused"};
};

// Which algorithm a base product takes on a GPU: a kernel of our own for few rows, else the
// first that the library names; the first; or of those that the library names the one that
// was the quickest when they were timed.
enum class BaseAlgorithm : std::uint8_t { kAuto, kFirst, kQuickest };
template <>
struct EnumNames<BaseAlgorithm> {
  static constexpr std::array<std::string_view, 3> kNames{"auto", "first", "quickest"};
};

// The products that an op makes: of a base, x by W, by a layer alone; x by A, and h by B. Without
// the second h is an input, without the third there is no y. Who has no products makes none.
[[nodiscard]] bool has_base(Op op);
[[nodiscard]] bool has_shrink(Op op);
[[nodiscard]] bool has_expand(Op op);
[[nodiscard]] constexpr bool has_products(Op op) {
  return op != Op::kMetadata && op != Op::kQuantise;
}
// Whether it matters to the op which adapter a row has.
[[nodiscard]] constexpr bool has_adapters(Op op) { return op != Op::kQuantise; }

// One packed projection: y columns [offset_start + sum of earlier widths, + width) belong to a
// slice; all other columns of a y row belong to nobody and stay untouched.
struct LayerShape {
  std::string model;  // "llama-3.1-8b", or "" for a custom shape
  std::string name;   // "qkv", "o", ..., or "custom"
  std::int64_t in_features = 0;
  std::vector<std::int64_t> widths;  // may be 0
  std::int64_t offset_start = 0;
  std::int64_t x_stride = 0;  // elements between rows of x, >= in_features
  std::int64_t x_column_stride = 1;
  std::int64_t y_stride = 0;  // elements between rows of y, >= offset_start + sum(widths)
  std::int64_t h_stride = 0;  // elements between rows of h; 0: without gaps
  std::int64_t count = 0;     // such layers in a forward pass of the model; 0 = of no model

  [[nodiscard]] bool operator==(const LayerShape&) const = default;
};

// Elements that a row of x takes.
[[nodiscard]] inline std::int64_t extent_of_x(const LayerShape& layer) {
  return layer.in_features == 0 ? 0 : (layer.in_features - 1) * layer.x_column_stride + 1;
}
// Columns of a row of y up to the end of the last slice.
[[nodiscard]] std::int64_t columns_of(const LayerShape& layer);

// What op layer asks beside the shape.
struct LayerSetup {
  LayerKind kind = LayerKind::kReplicated;
  std::int64_t tp = 1;  // shards
  bool fully_sharded = false;
  std::int64_t kv_heads = 0;     // of qkv and merged_qkv
  std::int64_t v_head_size = 0;  // of these: columns of a head of v; 0 = as layer.out says
  bool bias = false;             // of the base
  bool skip_bias = false;        // ... which is not added but returned apart
  bool missing_slices = false;   // adapters leave blocks alone, each another one
  // How many blocks each pair of A and B covers, in turn; none = one each.
  std::vector<std::int64_t> packed = {};
  // Which blocks adapters leave alone: a list cycles over the slots.
  std::vector<std::vector<std::int64_t>> missing = {};
  bool gather_output = false;  // of layers divided by columns: every shard ends with all
  bool input_split = false;    // of a row layer: each shard's columns of x lie by themselves
  bool reduce_results = true;  // of a row layer: the shards' terms are summed
  Comm comm = Comm::kNone;
  // Of logits: the vocabulary is padded to a multiple of it; y = scale * cap * tanh(y / cap).
  std::int64_t padding = 64;
  double soft_cap = 0, logit_scale = 1;
  std::int64_t extra_vocabulary = 0;  // of vocab_embedding: rows that each adapter adds
  GatherTo gather_to = GatherTo::kAll;
  Overlap overlap = Overlap::kAuto;
  BaseAlgorithm base_algorithm = BaseAlgorithm::kAuto;

  [[nodiscard]] bool operator==(const LayerSetup&) const = default;
};

// What op metadata asks beside the batch and the adapters.
struct MetadataSpec {
  Form form = Form::kKernel;
  std::int64_t samples = 1;   // rows of each sequence whose logits are taken
  std::int64_t requests = 0;  // entries of the table from request to slot; 0: twice the sequences
  std::int64_t vocabulary = 32000, extra_vocabulary = 256, block = 16;  // block: of form align

  [[nodiscard]] bool operator==(const MetadataSpec&) const = default;
};

struct BatchSpec {
  std::int64_t decode = 0;            // sequences of one token
  std::vector<std::int64_t> prefill;  // lengths of prompt chunks, each one sequence

  [[nodiscard]] bool operator==(const BatchSpec&) const = default;
};

// Ranks of the slots: `list` cycles over slots, or `shares` splits them (largest remainder) and
// deals them by seed. Exactly one is non-empty. Rank 0 is an adapter that does nothing.
struct RankLaw {
  std::vector<std::int64_t> list;
  std::vector<std::pair<std::int64_t, double>> shares;

  [[nodiscard]] bool operator==(const RankLaw&) const = default;
};

[[nodiscard]] std::int64_t largest_rank(const RankLaw& law);

// What stands in the lanes stored of an adapter above its own rank: NaN, and no backend reads them;
// or zeros, and the adapter is handed at the largest rank, as where an engine has one for all.
enum class Padding : std::uint8_t { kUnread, kZeros };
template <>
struct EnumNames<Padding> {
  static constexpr std::array<std::string_view, 2> kNames{"unread", "zeros"};
};

// How A and B of the slices of an adapter lie, and h with them.
enum class Placing : std::uint8_t {
  kSeparate,  // each slice in a buffer of its own; h by slices
  kStacked,   // all slices of an adapter behind each other, at the largest rank; h by rows
  kPacked,    // the same, lanes of A and h at the adapter's own rank
};
template <>
struct EnumNames<Placing> {
  static constexpr std::array<std::string_view, 3> kNames{"separate", "stacked", "packed"};
};

struct AdapterSpec {
  std::int64_t slots = 1;
  std::int64_t active = 0;  // exactly so many are touched; 0 = as the law draws
  RankLaw rank;
  std::int64_t max_rank = 0;  // stored lanes of A and B; >= largest rank
  Padding padding = Padding::kUnread;
  std::vector<double> scale;   // one for all, or cycles over slots
  std::optional<Dtype> dtype;  // of A, B and bias; none: that of x and y
  bool bias = false;
  std::vector<std::int64_t> bias_slices;  // that have one; none: all
  bool rank0_bias = false;                // of adapters of rank 0 too
  Placing placing = Placing::kSeparate;
  std::int64_t a_stride = 0;  // elements from a lane of A to the next; 0: without gaps
  std::int64_t b_stride = 0;  // the same between outputs of B

  [[nodiscard]] bool operator==(const AdapterSpec&) const = default;
};

enum class Skew : std::uint8_t {
  kIdentical,  // every sequence uses adapter 0
  kDistinct,   // sequence i uses adapter i mod slots
  kUniform,    // drawn uniformly
  kZipf,       // drawn with p(i) ~ 1 / (i + 1)^a
  kHot,        // adapter 0 with probability p, the others uniformly
  kOneVsRest,  // sequence 0 uses adapter 0, all others adapter 1
  kBlocks,     // n sequences in equal contiguous runs, one run per adapter
  kTrace,      // adapter ids read from a file, in order, cycled
};
template <>
struct EnumNames<Skew> {
  static constexpr std::array<std::string_view, 8> kNames{
      "identical", "distinct", "uniform", "zipf", "hot", "one-vs-rest", "blocks", "trace"};
};

struct SkewLaw {
  Skew kind = Skew::kUniform;
  double parameter = 0;             // zipf: a; hot: p
  std::string trace_file;           // as written, for messages
  std::vector<std::int32_t> trace;  // its ids, read and range-checked with the scenario

  [[nodiscard]] bool operator==(const SkewLaw&) const = default;
};

// Whether the law, drawn long enough, would use every slot.
[[nodiscard]] bool reaches_all_slots(const SkewLaw& law);

enum class CacheMode : std::uint8_t { kWeightsCold, kCold, kHot };
template <>
struct EnumNames<CacheMode> {
  static constexpr std::array<std::string_view, 3> kNames{"weights-cold", "cold", "hot"};
};
enum class LaunchMode : std::uint8_t { kGraph, kStream };
template <>
struct EnumNames<LaunchMode> {
  static constexpr std::array<std::string_view, 2> kNames{"graph", "stream"};
};

struct VerifySettings {
  bool enabled = true;          // verify: false -> rows are MISTRUSTED, never PASSED
  bool relations = false;       // level 3 (docs/verifying.md); always on in `verify`
  std::int64_t max_rows = 256;  // rows compared in full; more are sampled by stratum
  double timeout_s = 60;        // watchdog, per case and backend

  [[nodiscard]] bool operator==(const VerifySettings&) const = default;
};

struct MeasureSettings {
  bool enabled = true;
  LaunchMode mode = LaunchMode::kGraph;
  CacheMode cache = CacheMode::kWeightsCold;
  double warmup_ms = 200;
  std::int64_t min_samples = 15;
  std::int64_t max_samples = 200;
  double min_time_ms = 100;    // sampling goes on at least so long ...
  double max_time_ms = 2000;   // ... and at most so long
  double noise_target = 0.01;  // stop early once the median is known to this share
  bool phases = false;         // shrink and expand of a linear op by themselves as well

  [[nodiscard]] bool operator==(const MeasureSettings&) const = default;
};

// One thing that backend `auto` would else choose: "split", "4".
struct KnobValue {
  std::string knob, value;

  [[nodiscard]] bool operator==(const KnobValue&) const = default;
};

// What is said of `auto`, in the order in which it lists its knobs (LoadOptions::tuning); all else
// it chooses. No value changes a bit of a result.
using Tuning = std::vector<KnobValue>;

// As a scenario would say it: "family: panel, split: 4"; "" where nothing is said.
[[nodiscard]] std::string tuning_text(const Tuning& tuning);

// Who groups the rows of the batch: the host, before any launch, or a kernel at the start of each.
enum class MadeOn : std::uint8_t { kHost, kDevice };
template <>
struct EnumNames<MadeOn> {
  static constexpr std::array<std::string_view, 2> kNames{"host", "device"};
};

// In which index arrays an op is handed its plan: ours, or a published form (docs/plan.md).
enum class PlanForm : std::uint8_t { kSorted, kKernel, kChunked };
template <>
struct EnumNames<PlanForm> {
  static constexpr std::array<std::string_view, 3> kNames{"sorted", "kernel", "chunked"};
};
// The form that op metadata makes of the same arrays; none of form sorted.
[[nodiscard]] constexpr std::optional<Form> published_form(PlanForm form) {
  switch (form) {
    case PlanForm::kKernel:
      return Form::kKernel;
    case PlanForm::kChunked:
      return Form::kChunked;
    case PlanForm::kSorted:
      break;
  }
  return std::nullopt;
}
// How many groups a launch on a published form is made for: as many as any batch over these slots
// may have, or those of this batch.
enum class PlanGrid : std::uint8_t { kSlots, kActive };
template <>
struct EnumNames<PlanGrid> {
  static constexpr std::array<std::string_view, 2> kNames{"slots", "active"};
};

// How an op is handed its plan, and what a launch is captured for.
struct PlanSpec {
  // Rows, and adapters in use, where that is more than the batch; 0: the batch's own.
  std::int64_t max_tokens = 0, max_slots = 0;
  MadeOn made_on = MadeOn::kHost;
  PlanForm form = PlanForm::kSorted;
  PlanGrid grid = PlanGrid::kSlots;  // of the published forms
  // Of form chunked, of an op and of op metadata: most rows of a segment, if the batch's size
  // allows as many; whether rows without an adapter have segments too.
  std::int64_t largest_chunk = 16;
  bool idle_segments = false;

  [[nodiscard]] bool operator==(const PlanSpec&) const = default;
};

// As a scenario would: "max_tokens: 96, max_slots: 512"; "" where nothing is.
[[nodiscard]] std::string plan_text(const PlanSpec& plan);

struct Thresholds {
  std::optional<double> max_floor_ratio;
  std::optional<double> max_stream_ratio;
  std::optional<double> max_time_us;
  std::optional<double> max_regression;  // 0.05 = 5 %
  std::optional<double> min_tokens_per_s;
  std::optional<double> max_tax_pct;  // of a layer: what adapters add, of its base

  [[nodiscard]] bool operator==(const Thresholds&) const = default;
};

// The thresholds that a run judges by itself; max_regression needs a second run. A new one goes to
// the end, and describe.cpp judges it.
struct ThresholdField {
  const char* name;
  const char* usage;
  const char* meaning;
  const char* allowed;
  double most;
  std::optional<double> Thresholds::*value;
};
inline constexpr std::array<ThresholdField, 5> kThresholdFields{
    {{"max_floor_ratio", "max_floor_ratio=R", "fail (exit 3) above so many times the floor",
      "a number from 0 to 1e9", 1e9, &Thresholds::max_floor_ratio},
     {"max_time_us", "max_time_us=T", "fail above so many microseconds", "a number from 0 to 1e12",
      1e12, &Thresholds::max_time_us},
     {"min_tokens_per_s", "min_tokens_per_s=N", "fail below so many tokens per second",
      "a number from 0 to 1e15", 1e15, &Thresholds::min_tokens_per_s},
     {"max_stream_ratio", "max_stream_ratio=R", "fail above so many times one pass over all bytes",
      "a number from 0 to 1e9", 1e9, &Thresholds::max_stream_ratio},
     {"max_tax_pct", "max_tax_pct=P",
      "of a layer: fail where adapters add more percent to its base", "a number from 0 to 1e9", 1e9,
      &Thresholds::max_tax_pct}}};

// One point of a scenario: one value of everything.
struct Case {
  std::string scenario;                      // name of the scenario
  std::string scenario_file;                 // path as given
  std::string id;                            // unique in the scenario; stable across runs
  std::map<std::string, std::string> point;  // the swept keys and their values, for grouping
  std::vector<std::string> tags;
  Op op = Op::kLinear;
  Dtype dtype = Dtype::kBf16;
  Dtype intermediate = Dtype::kFp32;  // of eight bits: h is quantised between the two sums
  ScaleAt scale_at = ScaleAt::kShrink;
  bool add_inputs = true;
  IdleRows idle_rows = IdleRows::kKept;
  Inputs inputs = Inputs::kShared;
  bool shrink_adds = false;  // op shrink adds to an h that is given
  LayerShape layer;
  LayerSetup setup;       // of op layer alone
  MetadataSpec metadata;  // of op metadata alone
  ExpertsSpec experts;
  RoutingLaw routing;  // of experts
  BatchSpec batch;
  AdapterSpec adapters;
  WeightsSpec weights;
  ActivationsSpec activations;
  QuantiserSpec quantiser;  // of op quantise, and of an op linear that quantises h
  SkewLaw skew;             // decode sequences
  SkewLaw prefill_skew;     // prefill sequences; defaults to `skew`
  double no_adapter = 0;    // share of sequences without an adapter
  Order order = Order::kShuffled;
  std::uint64_t seed = 1;
  std::vector<std::string> backends;
  PlanSpec plan;
  Tuning tuning;
  Thresholds thresholds;
  VerifySettings verify;
  MeasureSettings measure;

  [[nodiscard]] bool operator==(const Case&) const = default;
};

}  // namespace lora_bench
