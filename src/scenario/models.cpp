#include "scenario/resolve.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "scenario/reader.h"
#include "scenario/schema.h"
#include "scenario/settings.h"

namespace lora_bench {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kKeysOfLayer[] = {"in", "out", "kv_heads", "blocks", "part"};

std::optional<std::int64_t> positive(const Value* value) {
  if (value == nullptr || value->kind != Value::Kind::kScalar) {
    return std::nullopt;
  }
  const auto number = integer_in(value->text);
  return number && *number >= 1 && *number <= kMaxFeatures ? number : std::nullopt;
}

// What a model says of its experts: fields of a scenario, but for those of a layer or an adapter.
ExpertsSpec experts_of(const Value& map, Diagnostics& diagnostics) {
  Case scratch;
  FieldContext context;
  for (const Value::Entry& entry : map.entries) {
    const bool of_layer = entry.key == "part" || entry.key == "missing";
    const Field* field = of_layer ? nullptr : find_field(fields(), kExperts + entry.key);
    if (field == nullptr) {
      diagnostics.add(entry.where, fmt::format("unknown key '{}' in 'experts'", entry.key),
                      "count, top_k, weight_at, renormalise, scaling");
    } else {
      field->read(Reader(entry.value, field->doc.path, field->doc.allowed, diagnostics), scratch,
                  context);
    }
  }
  if (!scratch.experts.any()) {
    diagnostics.add(map.where, "'experts' of a model without 'count'", "a map with count");
  }
  return scratch.experts;
}

// `layer` as the whole model says it. One with a part is of its experts, others are not.
void read_layer(const Value::Entry& entry, ModelLayer layer, std::vector<ModelLayer>& layers,
                Diagnostics& diagnostics) {
  layer.layer = entry.key;
  const auto in = positive(entry.value.find("in"));
  const Value* out = entry.value.find("out");
  bool good = in && out != nullptr && out->kind == Value::Kind::kList && !out->items.empty();
  layer.in_features = in.value_or(1);
  for (const Value& width : good ? out->items : std::vector<Value>{}) {
    const auto number = positive(&width);
    good = good && number.has_value();
    layer.widths.push_back(number.value_or(1));
  }
  if (const Value* heads = entry.value.find("kv_heads")) {
    layer.kv_heads = positive(heads).value_or(0);
    good = good && layer.kv_heads > 0;
  }
  if (const Value* blocks = entry.value.find("blocks")) {
    layer.count_per_step = positive(blocks).value_or(0);
    good = good && layer.count_per_step > 0;
  }
  const Value* part = entry.value.find("part");
  const auto named_part = part == nullptr ? std::nullopt : named<ExpertsPart>(part->text);
  good = good && (part == nullptr || (named_part && layer.experts.any()));
  layer.experts = part == nullptr ? ExpertsSpec{} : layer.experts;
  layer.experts.part = named_part.value_or(ExpertsPart::kW13);
  for (const Value::Entry& field : entry.value.entries) {
    good = good && std::find(std::begin(kKeysOfLayer), std::end(kKeysOfLayer), field.key) !=
                       std::end(kKeysOfLayer);
  }
  if (!good) {
    diagnostics.add(
        entry.where, fmt::format("layer '{}' is not understood", entry.key),
        "{in: features, out: [widths]}, kv_heads where they are not of 128 columns, blocks where "
        "not every block has it, and part, w13 or w2, of a model with experts");
  }
  layers.push_back(std::move(layer));
}

// The names in `lacks`; nothing where it is no list of words.
std::optional<std::vector<std::string>> lacking(const Value* value) {
  std::vector<std::string> names;
  if (value == nullptr) {
    return names;
  }
  bool good = value->kind == Value::Kind::kList && !value->items.empty();
  for (const Value& item : value->items) {
    good = good && item.kind == Value::Kind::kScalar && !item.text.empty();
    names.push_back(item.text);
  }
  return good ? std::optional(names) : std::nullopt;
}

void read_model(const Value::Entry& entry, std::vector<ModelLayer>& layers,
                Diagnostics& diagnostics) {
  const Value* source = entry.value.find("source");
  const auto blocks = positive(entry.value.find("blocks"));
  const Value* shapes = entry.value.find("layers");
  const auto lacks = lacking(entry.value.find("lacks"));
  if (source == nullptr || source->text.empty() || !blocks || shapes == nullptr ||
      shapes->entries.empty() || !lacks) {
    diagnostics.add(entry.where, fmt::format("model '{}' is not understood", entry.key),
                    "a map with source, blocks and layers, and `lacks`, a list of names, where no "
                    "layer here is a part of the model");
    return;
  }
  const Value* experts = entry.value.find("experts");
  const ModelLayer of_model{
      .model = entry.key,
      .layer = "",
      .count_per_step = *blocks,
      .source = source->text,
      .experts = experts == nullptr ? ExpertsSpec{} : experts_of(*experts, diagnostics)};
  for (const Value::Entry& layer : shapes->entries) {
    read_layer(layer, of_model, layers, diagnostics);
  }
}

}  // namespace

std::vector<ModelLayer> parse_models(const std::string& text, const std::string& file) {
  Diagnostics diagnostics;
  std::vector<ModelLayer> layers;
  if (const auto root = parse_yaml(text, file, diagnostics)) {
    for (const Value::Entry& entry : root->entries) {
      read_model(entry, layers, diagnostics);
    }
  }
  if (layers.empty()) {
    diagnostics.add({file, 0, 0}, "no models");
  }
  diagnostics.throw_if_any();
  return layers;
}

std::map<std::string, std::vector<std::string>> parse_parts(const std::string& text,
                                                            const std::string& file) {
  std::map<std::string, std::vector<std::string>> parts;
  for (const ModelLayer& layer : parse_models(text, file)) {
    parts[layer.model].push_back(layer.layer);
  }
  Diagnostics diagnostics;
  const auto root = parse_yaml(text, file, diagnostics);
  for (auto& [model, names] : parts) {
    const auto lacks = lacking(root->find(model)->find("lacks"));
    if (lacks) {
      names.insert(names.end(), lacks->begin(), lacks->end());
    }
  }
  return parts;
}

namespace {

std::string text_of_models(const fs::path& file) {
  Diagnostics diagnostics;
  auto text = read_text(file, {}, diagnostics);
  diagnostics.throw_if_any();
  return std::move(*text);
}

}  // namespace

std::vector<ModelLayer> load_models() {
  const fs::path file = models_file();
  return parse_models(text_of_models(file), file.string());
}

std::map<std::string, std::vector<std::string>> layers_of_models() {
  try {
    const fs::path file = models_file();
    return parse_parts(text_of_models(file), file.string());
  } catch (const UsageError&) {
    return {};
  }
}

}  // namespace lora_bench
