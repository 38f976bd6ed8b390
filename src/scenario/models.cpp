#include "scenario/models.h"

#include <fmt/format.h>

#include "scenario/reader.h"
#include "scenario/schema.h"
#include "scenario/settings.h"

namespace lora_bench {
namespace {

namespace fs = std::filesystem;

std::optional<std::int64_t> positive(const Value* value) {
  if (value == nullptr || value->kind != Value::Kind::kScalar) {
    return std::nullopt;
  }
  const auto number = integer_in(value->text);
  return number && *number >= 1 && *number <= kMaxFeatures ? number : std::nullopt;
}

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
  for (const Value::Entry& field : entry.value.entries) {
    good = good && (field.key == "in" || field.key == "out" || field.key == "kv_heads");
  }
  if (!good) {
    diagnostics.add(
        entry.where, fmt::format("layer '{}' is not understood", entry.key),
        "{in: features, out: [widths]}, and kv_heads where they are not of 128 columns");
  }
  layers.push_back(std::move(layer));
}

void read_model(const Value::Entry& entry, std::vector<ModelLayer>& layers,
                Diagnostics& diagnostics) {
  const Value* source = entry.value.find("source");
  const auto blocks = positive(entry.value.find("blocks"));
  const Value* shapes = entry.value.find("layers");
  if (source == nullptr || source->text.empty() || !blocks || shapes == nullptr ||
      shapes->entries.empty()) {
    diagnostics.add(entry.where, fmt::format("model '{}' is not understood", entry.key),
                    "a map with source, blocks and layers");
    return;
  }
  for (const Value::Entry& layer : shapes->entries) {
    read_layer(layer,
               {.model = entry.key, .layer = "", .count_per_step = *blocks, .source = source->text},
               layers, diagnostics);
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

std::vector<ModelLayer> load_models() {
  const fs::path file = models_file();
  Diagnostics diagnostics;
  const auto text = read_text(file, {}, diagnostics);
  diagnostics.throw_if_any();
  return parse_models(*text, file.string());
}

std::map<std::string, std::vector<std::string>> layers_of_models() {
  std::map<std::string, std::vector<std::string>> layers;
  try {
    for (const ModelLayer& row : load_models()) {
      layers[row.model].push_back(row.layer);
    }
  } catch (const UsageError&) {
    return {};
  }
  return layers;
}

}  // namespace lora_bench
