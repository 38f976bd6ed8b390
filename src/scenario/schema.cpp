#include "scenario/schema.h"

#include <algorithm>
#include <array>
#include <utility>

namespace lora_bench {
namespace {

constexpr std::array kOps{Op::kShrink,    Op::kExpand, Op::kLinear,
                          Op::kEmbedding, Op::kLogits, Op::kLayer};
constexpr std::array kKinds{LayerKind::kReplicated,    LayerKind::kColumn,
                            LayerKind::kMergedColumn,  LayerKind::kMergedColumnVariable,
                            LayerKind::kQkv,           LayerKind::kMergedQkv,
                            LayerKind::kRow,           LayerKind::kLogits,
                            LayerKind::kVocabEmbedding};
constexpr std::array kOverlaps{Overlap::kAuto,  Overlap::kSerial,   Overlap::kShrink,
                               Overlap::kDelta, Overlap::kEpilogue, Overlap::kFused};
constexpr std::array kBaseAlgorithms{BaseAlgorithm::kAuto, BaseAlgorithm::kFirst,
                                     BaseAlgorithm::kQuickest};
constexpr std::array kDtypes{Dtype::kBf16, Dtype::kFp16, Dtype::kFp32};
constexpr std::array kScalesAt{ScaleAt::kShrink, ScaleAt::kExpand};
constexpr std::array kOrders{Order::kShuffled, Order::kSorted, Order::kAsArrived};
constexpr std::array kCaches{CacheMode::kWeightsCold, CacheMode::kCold, CacheMode::kHot};
constexpr std::array kComms{Comm::kNone, Comm::kNccl};
constexpr std::array kModes{LaunchMode::kGraph, LaunchMode::kStream};
constexpr std::array kFamilies{TunedFamily::kAuto, TunedFamily::kClustered, TunedFamily::kResident,
                               TunedFamily::kPanel};
constexpr const char* kAsAuto = "as `auto` chooses";
constexpr double kMaxMilliseconds = 3.6e6;

using R = const Reader&;
using X = FieldContext&;

const std::vector<Field> kFile{
    {{"name", "word", "letters, digits and . _ + : = -", "the file's name",
      "name of the scenario, in every row"},
     nullptr},
    {{"question", "text", "any text", "none", "what the scenario answers"}, nullptr},
    {{"tags", "word or list", "words", "[]", "free marks, to filter by"},
     [](R r, Case& c, X) { r.words(c.tags); }},
    {{"include", "path or list", "files beside or below this one, or in the scenario folder", "[]",
      "files whose keys come first; keys of this file replace them"},
     nullptr},
    {{"sweep", "map or list of maps", "fields with lists of values, `product`, `zip`", "none",
      "the points of the scenario"},
     nullptr},
    {{"cases", "list of maps", "maps of fields, each with a `name` if you like", "none",
      "named points; multiplied with `sweep` if there is one"},
     nullptr},
};

const std::vector<Field> kLayer{
    {{"model", "word", "a model of models.yaml", "none", "whose layer shapes are used"},
     [](R r, Case& c, X) { r.word(c.layer.model); }},
    {{"layers", "word or list", "layers of the model, or all", "all",
      "layers of `model`; each is one point"},
     [](R r, Case& c, X) { r.word(c.layer.name); }},
    {{"layer.in", "integer", "an integer from 1 to 16777216", "required without model",
      "input features K of a layer of your own"},
     [](R r, Case& c, X) { r.integer(c.layer.in_features, 1, kMaxFeatures); }},
    {{"layer.out", "integer or list", "1 to 64 integers from 0 to 16777216",
      "required without model", "widths N of its slices; may be 0"},
     [](R r, Case& c, X) { r.integers(c.layer.widths, 0, kMaxFeatures); }},
    {{"layer.offset_start", "integer", "an integer from 0 to 16777216", "0",
      "columns of y before the first slice"},
     [](R r, Case& c, X) { r.integer(c.layer.offset_start, 0, kMaxFeatures); }},
    {{"layer.x_stride", "integer", "an integer from 0 to 2147483648, at least the input features",
      "0: the input features", "elements from a row of x to the next"},
     [](R r, Case& c, X) { r.integer(c.layer.x_stride, 0, kMaxStride); }},
    {{"layer.y_stride", "integer", "an integer from 0 to 2147483648, at least the columns of y",
      "0: offset_start and all widths", "elements from a row of y to the next"},
     [](R r, Case& c, X) { r.integer(c.layer.y_stride, 0, kMaxStride); }},
    {{"layer.kind", "word",
      "replicated, column, merged_column, merged_column_variable, qkv, merged_qkv, row, logits, "
      "vocab_embedding",
      "by the model's layer: qkv merged_qkv, gate_up merged_column, o and down row",
      "what the layer is to its shards, of op layer"},
     [](R r, Case& c, X) { r.choice(c.setup.kind, kKinds); }},
    {{"layer.tp", "integer", "an integer from 1 to 64", "1", "shards that a layer is divided into"},
     [](R r, Case& c, X) { r.integer(c.setup.tp, 1, kMaxShards); }},
    {{"layer.fully_sharded", "boolean", "true, false", "false",
      "divide A and h too, as S-LoRA does"},
     [](R r, Case& c, X) { r.boolean(c.setup.fully_sharded); }},
    {{"layer.kv_heads", "integer", "an integer from 0 to 65536", "0: heads of 128 columns",
      "heads of k and v of a qkv layer; other kinds ignore it"},
     [](R r, Case& c, X) { r.integer(c.setup.kv_heads, 0, kMaxSlots); }},
    {{"layer.bias", "boolean", "true, false", "false", "the base of a layer has a bias"},
     [](R r, Case& c, X) { r.boolean(c.setup.bias); }},
    {{"layer.skip_bias", "boolean", "true, false", "false",
      "the base's bias is not added but returned apart"},
     [](R r, Case& c, X) { r.boolean(c.setup.skip_bias); }},
    {{"layer.missing_slices", "boolean", "true, false", "false",
      "adapters have no A and B for some outputs, each for others; of merged kinds, others ignore "
      "it"},
     [](R r, Case& c, X) { r.boolean(c.setup.missing_slices); }},
    {{"layer.gather_output", "boolean", "true, false", "false",
      "every shard of a column layer ends with all columns"},
     [](R r, Case& c, X) { r.boolean(c.setup.gather_output); }},
    {{"layer.input_split", "boolean", "true, false", "false",
      "each shard's columns of x lie by themselves, as the layer before left them; of a row layer"},
     [](R r, Case& c, X) { r.boolean(c.setup.input_split); }},
    {{"layer.comm", "word", "none, nccl", "none: all shards on one device, each timed alone",
      "what shards exchange their results through while they are timed; nccl: each has a GPU"},
     [](R r, Case& c, X) { r.choice(c.setup.comm, kComms); }},
    {{"layer.padding", "integer", "an integer from 1 to 65536", "64",
      "columns that the shards of logits together are a multiple of; what is too many is cut off"},
     [](R r, Case& c, X) { r.integer(c.setup.padding, 1, kMaxSlots); }},
    {{"layer.soft_cap", "number", "a number from 0 to 1e6", "0: none",
      "cap of logits: cap * tanh(y / cap)"},
     [](R r, Case& c, X) { r.real(c.setup.soft_cap, 0, 1e6); }},
    {{"layer.logit_scale", "number", "a number from 1e-6 to 1e6", "1", "of logits, after the cap"},
     [](R r, Case& c, X) { r.real(c.setup.logit_scale, 1e-6, 1e6); }},
    {{"layer.overlap", "word", "auto, serial, shrink, delta, epilogue, fused", "auto",
      "how the adapters' part of a layer runs beside its base, see layers.md"},
     [](R r, Case& c, X) { r.choice(c.setup.overlap, kOverlaps); }},
    {{"layer.base_algorithm", "word", "auto, first, quickest", "auto",
      "the base product on a GPU: of what cuBLASLt names the first or the quickest when timed; "
      "auto: "
      "a kernel of our own for few rows, else the first"},
     [](R r, Case& c, X) { r.choice(c.setup.base_algorithm, kBaseAlgorithms); }},
};

const std::vector<Field> kOp{
    {{"op", "word", "shrink, expand, linear, embedding, logits, layer", "linear",
      "what is computed"},
     [](R r, Case& c, X) { r.choice(c.op, kOps); }},
    {{"dtype", "word", "bf16, fp16, fp32", "bf16", "storage of x, A, B, bias and y"},
     [](R r, Case& c, X) { r.choice(c.dtype, kDtypes); }},
    {{"intermediate", "word", "fp32 or the same as `dtype`", "fp32", "storage of h"},
     [](R r, Case& c, X) { r.choice(c.intermediate, kDtypes); }},
    {{"scale_at", "word", "shrink, expand (embedding: expand)", "shrink (embedding: expand)",
      "which half applies the adapter's scale"},
     [](R r, Case& c, X) { r.choice(c.scale_at, kScalesAt); }},
    {{"add_inputs", "boolean", "true, false", "true", "add to y (true) or overwrite it (false)"},
     [](R r, Case& c, X) { r.boolean(c.add_inputs); }},
};

const std::vector<Field> kBatch{
    {{"batch.decode", "integer", "an integer from 0 to 1048576", "0", "sequences of one token"},
     [](R r, Case& c, X) { r.integer(c.batch.decode, 0, kMaxTokens); }},
    {{"batch.prefill", "integer or list",
      "lengths from 1 to 1048576, or COUNTxLENGTH, 1048576 tokens in all", "[]",
      "prompt chunks, one sequence each; 4x992 is four of 992 tokens"},
     [](R r, Case& c, X) { r.prefill(c.batch.prefill, kMaxTokens); }},
    {{"adapters.slots", "integer", "an integer from 1 to 65536", "1", "adapters resident"},
     [](R r, Case& c, X) { r.integer(c.adapters.slots, 1, kMaxSlots); }},
    {{"adapters.active", "integer", "an integer from 0 to 65536; 0 = as the law draws", "0",
      "exactly so many adapters are touched"},
     [](R r, Case& c, X) { r.integer(c.adapters.active, 0, kMaxSlots); }},
    {{"adapters.rank", "integer, list or map of shares",
      "integers from 0 to 4096, or {rank: share, ...} with shares that add up to 1", "16",
      "ranks of the slots: one, a list that cycles over them, or shares of them"},
     [](R r, Case& c, X) { r.rank(c.adapters.rank, kMaxRank); }},
    {{"adapters.max_rank", "integer", "an integer from 0 to 4096, at least the largest rank",
      "0: the largest rank", "lanes stored per adapter"},
     [](R r, Case& c, X) { r.integer(c.adapters.max_rank, 0, kMaxRank); }},
    {{"adapters.scale", "number or list", "numbers from -65536 to 65536", "1",
      "factor on the delta: one, or a list that cycles over the slots"},
     [](R r, Case& c, X) { r.scale(c.adapters.scale); }},
    {{"adapters.bias", "boolean", "true, false", "false", "a bias per adapter and slice"},
     [](R r, Case& c, X) { r.boolean(c.adapters.bias); }},
    {{"skew", "word or map",
      "identical, distinct, uniform, one-vs-rest, blocks, {zipf: 0 to 16}, {hot: 0 to 1}, "
      "{trace: FILE}",
      "uniform", "the law by which sequences choose adapters"},
     [](R r, Case& c, X x) { r.skew(c.skew, x.traces, x.folder); }},
    {{"prefill_skew", "word or map", "as `skew`", "as `skew`", "the law for prefill sequences"},
     [](R r, Case& c, X x) { r.skew(c.prefill_skew, x.traces, x.folder); }},
    {{"no_adapter", "share", "a share from 0 to 1, or 0% to 100%", "0",
      "share of the sequences without an adapter"},
     [](R r, Case& c, X) { r.share(c.no_adapter, 1); }},
    {{"order", "word", "shuffled, sorted, as-arrived", "shuffled", "order of the rows"},
     [](R r, Case& c, X) { r.choice(c.order, kOrders); }},
    {{"plan.max_tokens", "integer", "an integer from 0 to 1048576, at least the batch's tokens",
      "0: the batch's own",
      "rows that a launch is captured for; those beyond the batch have no adapter"},
     [](R r, Case& c, X) { r.integer(c.plan.max_tokens, 0, kMaxTokens); }},
    {{"plan.max_slots", "integer", "an integer from 0 to 65536, at most adapters.slots",
      "0: the batch's own",
      "adapters in use that `auto` and `panel` are captured for; see docs/plan.md"},
     [](R r, Case& c, X) { r.integer(c.plan.max_slots, 0, kMaxSlots); }},
    {{"seed", "integer", "an integer from 0 to 18446744073709551615", "1",
      "all that is drawn follows from it"},
     [](R r, Case& c, X) { r.seed(c.seed); }},
    {{"backends", "word or list", "names as `lora-bench list backends` prints them",
      "[]: every GPU backend where there is a GPU, else cpu", "implementations to run"},
     [](R r, Case& c, X x) { r.words(c.backends, x.check_backend); }},
};

const std::vector<Field> kTuning{
    {{"tuning.family", "word", "auto, clustered, resident, panel", "auto",
      "kernel family that backend `auto` launches; other backends ignore `tuning`"},
     [](R r, Case& c, X) { r.choice(c.tuning.family, kFamilies); }},
    {{"tuning.cluster", "integer", "1 to 8 or 16; 0 leaves it to `auto`", kAsAuto,
      "family clustered: blocks of a cluster"},
     [](R r, Case& c, X) { r.integer(c.tuning.cluster, 0, 16); }},
    {{"tuning.groups", "integer", "1 to 8; 0 leaves it to `auto`", kAsAuto,
      "family clustered: clusters that share the columns of a row tile"},
     [](R r, Case& c, X) { r.integer(c.tuning.groups, 0, 8); }},
    {{"tuning.warps", "integer", "2, 3, 4, 6, 8, 12 or 16; 0 leaves it to `auto`", kAsAuto,
      "family clustered: warps of a block"},
     [](R r, Case& c, X) { r.integer(c.tuning.warps, 0, 16); }},
    {{"tuning.slots", "integer", "1 to 4; 0 leaves it to `auto`", kAsAuto,
      "family clustered: slots of the ring of a warp"},
     [](R r, Case& c, X) { r.integer(c.tuning.slots, 0, 4); }},
    {{"tuning.blocks", "integer", "1 or 2; 0 leaves it to `auto`", kAsAuto,
      "family clustered: blocks that share the memory of a multiprocessor"},
     [](R r, Case& c, X) { r.integer(c.tuning.blocks, 0, 2); }},
    {{"tuning.shrink_tile", "word",
      "ROWSxLANES, some with -joined or -grouped, as `plan --explain` says them", kAsAuto,
      "family panel: tile of shrink; joined: a cluster adds its chains; grouped: wgmma"},
     [](R r, Case& c, X) { r.word(c.tuning.shrink_tile); }},
    {{"tuning.split", "integer", "1, 2, 4 or 8; 0 leaves it to `auto`", kAsAuto,
      "family panel: blocks that share the chains of a tile of shrink"},
     [](R r, Case& c, X) { r.integer(c.tuning.split, 0, 8); }},
    {{"tuning.parts", "integer", "1, 2, 4 or 8, at least the split; 0 leaves it to `auto`", kAsAuto,
      "family panel: parts in which h leaves shrink"},
     [](R r, Case& c, X) { r.integer(c.tuning.parts, 0, 8); }},
    {{"tuning.expand_tile", "word", "ROWSxCOLUMNSxLANES, as `plan --explain` says them", kAsAuto,
      "family panel: tile of expand, with the most lanes that it takes"},
     [](R r, Case& c, X) { r.word(c.tuning.expand_tile); }},
    {{"tuning.chunks", "integer", "1 to 65536, at most the column tiles; 0 leaves it to `auto`",
      kAsAuto, "family panel: blocks that share the column tiles of a row tile of expand"},
     [](R r, Case& c, X) { r.integer(c.tuning.chunks, 0, 65536); }},
};

template <std::size_t kIndex>
Field threshold_field() {
  constexpr const ThresholdField& kField = kThresholdFields[kIndex];
  return {
      {std::string("thresholds.") + kField.name, "number", kField.allowed, "none", kField.meaning},
      [](R r, Case& c, X) {
        constexpr const ThresholdField& kRead = kThresholdFields[kIndex];
        r.optional_real(c.thresholds.*kRead.value, 0, kRead.most);
      }};
}

template <std::size_t... kIndices>
std::vector<Field> threshold_fields(std::index_sequence<kIndices...>) {
  return {threshold_field<kIndices>()...};
}

const std::vector<Field> kThresholds =
    threshold_fields(std::make_index_sequence<kThresholdFields.size()>());

const std::vector<Field> kGates{
    {{"thresholds.max_regression", "share",
      "a share from 0 to 1, or 0% to 100%; write 3% for three percent", "none",
      "fail when slower than the compared run by more"},
     [](R r, Case& c, X) { r.optional_share(c.thresholds.max_regression, 1); }},
    {{"verify.enabled", "boolean", "true, false", "true",
      "prove each result; without, a row is MISTRUSTED; short form `verify: false`"},
     [](R r, Case& c, X) { r.boolean(c.verify.enabled); }},
    {{"verify.relations", "boolean", "true, false", "false",
      "level 3 in `run` too; `verify` always does it"},
     [](R r, Case& c, X) { r.boolean(c.verify.relations); }},
    {{"verify.max_rows", "integer", "an integer from 1 to 1048576", "256",
      "rows compared in full; of more a sample by stratum"},
     [](R r, Case& c, X) { r.integer(c.verify.max_rows, 1, kMaxTokens); }},
    {{"verify.timeout_s", "number", "a number from 0.001 to 86400", "60",
      "watchdog for a case and backend"},
     [](R r, Case& c, X) { r.real(c.verify.timeout_s, 0.001, 86400); }},
};

const std::vector<Field> kMeasure{
    {{"measure.enabled", "boolean", "true, false", "true",
      "time what was proved; short form `measure: false`"},
     [](R r, Case& c, X) { r.boolean(c.measure.enabled); }},
    {{"measure.mode", "word", "graph, stream", "graph", "how a GPU is launched"},
     [](R r, Case& c, X) { r.choice(c.measure.mode, kModes); }},
    {{"measure.cache", "word", "weights-cold, cold, hot", "weights-cold",
      "what the caches hold when a launch starts"},
     [](R r, Case& c, X) { r.choice(c.measure.cache, kCaches); }},
    {{"measure.warmup_ms", "number", "a number from 0 to 3600000", "200",
      "launches before samples"},
     [](R r, Case& c, X) { r.real(c.measure.warmup_ms, 0, kMaxMilliseconds); }},
    {{"measure.min_samples", "integer", "an integer from 1 to 1000000, at most max_samples", "15",
      "samples at least"},
     [](R r, Case& c, X) { r.integer(c.measure.min_samples, 1, 1000000); }},
    {{"measure.max_samples", "integer", "an integer from 1 to 1000000", "200", "samples at most"},
     [](R r, Case& c, X) { r.integer(c.measure.max_samples, 1, 1000000); }},
    {{"measure.min_time_ms", "number", "a number from 0 to 3600000, at most max_time_ms", "100",
      "sampling goes on at least so long"},
     [](R r, Case& c, X) { r.real(c.measure.min_time_ms, 0, kMaxMilliseconds); }},
    {{"measure.max_time_ms", "number", "a number from 0 to 3600000", "2000", "and at most so long"},
     [](R r, Case& c, X) { r.real(c.measure.max_time_ms, 0, kMaxMilliseconds); }},
    {{"measure.noise_target", "share", "a share from 0 to 1, or 0% to 100%", "0.01",
      "stop early once the median is known so well"},
     [](R r, Case& c, X) { r.share(c.measure.noise_target, 1); }},
    {{"measure.phases", "boolean", "true, false", "false",
      "time shrink and expand of a linear op, or of a layer, by themselves as well"},
     [](R r, Case& c, X) { r.boolean(c.measure.phases); }},
};

}  // namespace

std::string last_part(const std::string& path) { return path.substr(path.rfind('.') + 1); }

const std::vector<Field>& fields() {
  static const std::vector<Field> all = [] {
    std::vector<Field> table;
    for (const auto* part :
         {&kFile, &kLayer, &kOp, &kBatch, &kTuning, &kThresholds, &kGates, &kMeasure}) {
      table.insert(table.end(), part->begin(), part->end());
    }
    return table;
  }();
  return all;
}

const Field* find_field(const std::string& path) {
  const auto found = std::find_if(fields().begin(), fields().end(),
                                  [&](const Field& field) { return field.doc.path == path; });
  return found == fields().end() ? nullptr : &*found;
}

bool is_group(const std::string& path) {
  return std::any_of(fields().begin(), fields().end(),
                     [&](const Field& field) { return field.doc.path.starts_with(path + "."); });
}

std::string nearest_field(const std::string& path) {
  // The right word in the wrong group ("rank" at the top) is likelier than a misspelling.
  std::vector<std::string> paths;
  for (const Field& field : fields()) {
    if (last_part(field.doc.path) == last_part(path)) {
      return field.doc.path;
    }
    // A group comes before its fields: "adapter" is cut short of both.
    const std::size_t dot = field.doc.path.find('.');
    if (dot != std::string::npos) {
      paths.push_back(field.doc.path.substr(0, dot));
    }
    paths.push_back(field.doc.path);
  }
  const std::string near_path = nearest(path, paths);
  if (!near_path.empty()) {
    return near_path;
  }
  std::vector<std::string> parts;
  for (const Field& field : fields()) {
    parts.push_back(last_part(field.doc.path));
  }
  const std::string near_part = nearest(last_part(path), parts);
  const auto found = std::find(parts.begin(), parts.end(), near_part);
  return near_part.empty() ? ""
                           : fields()[static_cast<std::size_t>(found - parts.begin())].doc.path;
}

const std::vector<FieldDoc>& scenario_fields() {
  static const std::vector<FieldDoc> docs = [] {
    std::vector<FieldDoc> all;
    for (const Field& field : fields()) {
      all.push_back(field.doc);
    }
    return all;
  }();
  return docs;
}

}  // namespace lora_bench
