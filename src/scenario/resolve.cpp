#include "scenario/resolve.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

namespace lora_bench {
namespace {

// How a scenario may say what the op is made for.
const char* layer_forms(Op op) {
  return has_products(op) ? "`model` with `layers`, or `layer` with `in` and `out`"
                          : "`model` with `layers`, or `layer` with `in`";
}

bool resolve_shape(Case& spec, const CaseChecker& checker) {
  const Settings& settings = checker.settings();
  spec.layer.name = "custom";
  spec.layer.model.clear();
  for (const auto& [have, lack] :
       {std::pair{"layer.in", "layer.out"}, std::pair{"layer.out", "layer.in"}}) {
    const bool needed = has_products(spec.op) || std::string_view(lack) == "layer.in";
    if (needed && !settings.has(lack)) {
      checker.fail(have, {}, fmt::format("'{}' is missing", lack), layer_forms(spec.op));
      return false;
    }
  }
  return !checker.is_broken("layer.in") && !checker.is_broken("layer.out");
}

// The experts of a model's layer, but for what the scenario says of them.
void take_experts(const ExpertsSpec& of_model, const Settings& settings, ExpertsSpec& experts) {
  const auto take = [&](const char* path, auto member) {
    if (!settings.has(path)) {
      experts.*member = of_model.*member;
    }
  };
  take("experts.count", &ExpertsSpec::count);
  take("experts.top_k", &ExpertsSpec::top_k);
  take("experts.part", &ExpertsSpec::part);
  take("experts.weight_at", &ExpertsSpec::weight_at);
  take("experts.renormalise", &ExpertsSpec::renormalise);
  take("experts.scaling", &ExpertsSpec::scaling);
}

bool resolve_model(Case& spec, const CaseChecker& checker, Models& models) {
  std::vector<std::string> known_models;
  std::vector<std::string> known_layers;
  for (const ModelLayer& row : models.all()) {
    if (known_models.empty() || known_models.back() != row.model) {
      known_models.push_back(row.model);
    }
    if (row.model != spec.layer.model) {
      continue;
    }
    known_layers.push_back(row.layer);
    if (row.layer == spec.layer.name) {
      spec.layer.in_features = row.in_features;
      spec.layer.widths = row.widths;
      spec.layer.count = row.count_per_step;
      if (row.experts.any()) {
        take_experts(row.experts, checker.settings(), spec.experts);
      }
      if (has_base(spec.op) && spec.setup.kv_heads == 0) {
        spec.setup.kv_heads = row.kv_heads;
      }
      return true;
    }
  }
  if (known_layers.empty()) {
    checker.fail(
        "model", {"layers"}, fmt::format("there is no model '{}'", spec.layer.model),
        fmt::format("{}, and what you add to models.yaml beside the shipped scenarios or in "
                    "the folder that LORA_BENCH_SCENARIOS names",
                    fmt::join(known_models, ", ")),
        nearest(spec.layer.model, known_models));
  } else {
    checker.fail(
        "layers", {"model"}, fmt::format("{} has no layer '{}'", spec.layer.model, spec.layer.name),
        fmt::format("{}", fmt::join(known_layers, ", ")), nearest(spec.layer.name, known_layers));
  }
  return false;
}

bool resolve_layer(Case& spec, const CaseChecker& checker, Models& models) {
  const Settings& settings = checker.settings();
  if (settings.has("layer.in") || settings.has("layer.out")) {
    return resolve_shape(spec, checker);
  }
  if (settings.has("model")) {
    return !checker.is_broken("model") && !checker.is_broken("layers") &&
           resolve_model(spec, checker, models);
  }
  checker.fail("layers", {},
               settings.has("layers") ? "`layers` without a `model`" : "no layer is given",
               layer_forms(spec.op));
  return false;
}

// What the layers of models.yaml are to an engine. Those of experts are none.
std::optional<LayerKind> kind_of_model_layer(const std::string& layer) {
  constexpr std::pair<std::string_view, LayerKind> kKinds[] = {
      {"qkv", LayerKind::kMergedQkv},
      {"gate_up", LayerKind::kMergedColumn},
      {"shared_gate_up", LayerKind::kMergedColumn},
      {"shared_up", LayerKind::kColumn},
      {"o", LayerKind::kRow},
      {"down", LayerKind::kRow},
      {"shared_down", LayerKind::kRow}};
  const auto found = std::find_if(std::begin(kKinds), std::end(kKinds),
                                  [&](const auto& each) { return each.first == layer; });
  return found == std::end(kKinds) ? std::nullopt : std::optional(found->second);
}

bool has_heads(LayerKind kind) { return kind == LayerKind::kQkv || kind == LayerKind::kMergedQkv; }

// Of 128 columns each; 0 where k and v cannot be such heads: a slip, or heads that want to be said.
// Other kinds have none, but the hash of a case's content has always had this number.
std::int64_t usual_kv_heads(const LayerSetup& setup, const std::vector<std::int64_t>& widths) {
  constexpr std::int64_t kHeadColumns = 128;
  const bool other_v =
      setup.v_head_size == 0 && widths.size() > 2 && widths[2] != 0 && widths[2] != widths[1];
  if (has_heads(setup.kind) && (widths[1] % kHeadColumns != 0 || other_v)) {
    return 0;
  }
  return widths[1] / kHeadColumns;
}

// The width of v where the size of its heads is said: of q and k alone, or of a model's layer.
void resolve_v(Case& spec, const CaseChecker& checker) {
  const LayerSetup& setup = spec.setup;
  std::vector<std::int64_t>& widths = spec.layer.widths;
  if (setup.v_head_size == 0 || !has_heads(setup.kind) || widths.size() < 2 ||
      setup.kv_heads == 0) {
    return;
  }
  const std::int64_t width = setup.kv_heads * setup.v_head_size;
  if (spec.layer.model.empty() && widths.size() == 3 && widths[2] != width) {
    checker.fail("layer.v_head_size", {"layer.out", "layer.kv_heads"},
                 fmt::format("v of width {} is not {} heads of {} columns", widths[2],
                             setup.kv_heads, setup.v_head_size),
                 "widths of q and k alone in layer.out, and that of v follows");
    return;
  }
  if (widths.size() <= 3) {
    widths.resize(3);
    widths[2] = width;
  }
}

void resolve_setup(Case& spec, const CaseChecker& checker) {
  if (!has_base(spec.op)) {
    return;
  }
  if (!checker.settings().has("layer.kind")) {
    const std::optional<LayerKind> kind =
        spec.layer.model.empty() ? std::nullopt : kind_of_model_layer(spec.layer.name);
    if (!kind) {
      checker.fail("op", {"layers"}, "op layer without 'layer.kind'",
                   "a layer of a model, or a kind as docs/layers.md lists them");
      return;
    }
    spec.setup.kind = *kind;
  }
  if (spec.setup.kv_heads == 0 && spec.layer.widths.size() > 1) {
    spec.setup.kv_heads = usual_kv_heads(spec.setup, spec.layer.widths);
  }
  resolve_v(spec, checker);
}

}  // namespace

const std::vector<ModelLayer>& Models::all() {
  if (!read_) {
    read_ = true;
    try {
      layers_ = load_models();
    } catch (const UsageError& error) {
      diagnostics_.add_all(error.diagnostics());
    }
  }
  return layers_;
}

std::vector<std::string> Models::layers_of(const std::string& model) {
  std::vector<std::string> names;
  for (const ModelLayer& row : all()) {
    if (row.model == model) {
      names.push_back(row.layer);
    }
  }
  return names;
}

Case default_case() {
  Case spec;
  spec.adapters.rank.list = {16};
  spec.adapters.scale = {1.0};
  return spec;
}

namespace {

constexpr std::int64_t kUsualBlock = 128;

// A layer without experts has no routing either. Where no other layer of its model has experts,
// nothing may be said of them.
void resolve_without_experts(Case& spec, const CaseChecker& checker, Models& models) {
  const auto of_this_model = [&](const ModelLayer& row) {
    return row.model == spec.layer.model && row.experts.any();
  };
  for (const Field& field : fields()) {
    const std::string& path = field.doc.path;
    if ((path.starts_with(kExperts) || path == kRouting) && checker.settings().has(path) &&
        std::none_of(models.all().begin(), models.all().end(), of_this_model)) {
      checker.fail(path, {"experts.count", "model", "layers"},
                   fmt::format("'{}' of a layer without experts", path),
                   "experts.count, or a layer of experts of a model");
    }
  }
  spec.experts = {};
  spec.routing = {};
}

// What a case of eight bits does not say. Scales of other weights are for the checks to refuse.
void resolve_weights(WeightsSpec& weights) {
  if (weights.dtype && weights.scale == WeightsScale::kNone) {
    weights.scale = WeightsScale::kChannel;
  }
  if (weights.scale == WeightsScale::kBlock && weights.block.empty()) {
    weights.block = {kUsualBlock, kUsualBlock};
  }
}

// The same of x, whose blocks are as long as those of A where these are blocks too.
void resolve_activations(Op op, const WeightsSpec& weights, ActivationsSpec& activations) {
  if (op == Op::kQuantise && !activations.dtype) {
    activations.dtype = Dtype::kE4m3;
  }
  if (activations.dtype && activations.scale == ActivationsScale::kNone) {
    activations.scale = ActivationsScale::kToken;
  }
  if (activations.scale == ActivationsScale::kBlock && activations.group == 0) {
    activations.group = weights.block.size() == 2 ? weights.block[1] : kUsualBlock;
  }
}

}  // namespace

bool resolve(Case& spec, const CaseChecker& checker, Models& models) {
  resolve_weights(spec.weights);
  resolve_activations(spec.op, spec.weights, spec.activations);
  const bool looks_up = spec.op == Op::kEmbedding || spec.setup.kind == LayerKind::kVocabEmbedding;
  if (!checker.settings().has("scale_at") && looks_up) {
    spec.scale_at = ScaleAt::kExpand;
  }
  if (!checker.settings().has("prefill_skew")) {
    spec.prefill_skew = spec.skew;
  }
  if (spec.adapters.max_rank == 0) {
    for (const std::int64_t rank : spec.adapters.rank.list) {
      spec.adapters.max_rank = std::max(spec.adapters.max_rank, rank);
    }
    for (const auto& [rank, share] : spec.adapters.rank.shares) {
      spec.adapters.max_rank = std::max(spec.adapters.max_rank, rank);
    }
  }
  const bool multiplies_nothing = spec.op == Op::kMetadata;
  const bool has_layer = !multiplies_nothing && resolve_layer(spec, checker, models);
  // What a model that is not there would have had needs no second sentence.
  if (!spec.experts.any() && (has_layer || !checker.settings().has("model"))) {
    resolve_without_experts(spec, checker, models);
  }
  if (multiplies_nothing) {
    return false;
  }
  // What a model that is not there would have been needs no second sentence.
  if (has_layer || !checker.settings().has("model")) {
    resolve_setup(spec, checker);
  }
  LayerShape& layer = spec.layer;
  if (!has_products(spec.op)) {
    layer.widths.clear();  // x alone is read
  }
  if (layer.x_stride == 0) {
    layer.x_stride = extent_of_x(layer);
  }
  if (layer.y_stride == 0) {
    layer.y_stride = columns_of(layer);
  }
  return has_layer;
}

}  // namespace lora_bench
