#include "run/form.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>

#include "plan/forms.h"
#include "workload/batch.h"

namespace lora_bench {
namespace {

using Json = nlohmann::ordered_json;

// An array of the engine or of the form with its entries.
struct Listed {
  MetadataArray array;
  std::vector<std::int64_t> values;
};

std::vector<Listed> inputs_listed(const FormOfCase& form) {
  const MetadataProblem& problem = form.step.problem;
  const std::vector<MetadataArray> arrays = inputs_of(problem);
  const std::vector<std::vector<std::byte>> bytes = input_bytes(problem, form.step.engine);
  std::vector<Listed> listed;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    Listed input{arrays[i], {}};
    for (std::int64_t entry = 0; entry < arrays[i].elements; ++entry) {
      input.values.push_back(index_at(arrays[i], bytes[i].data(), entry));
    }
    listed.push_back(std::move(input));
  }
  return listed;
}

std::vector<Listed> outputs_listed(const FormOfCase& form) {
  const std::vector<MetadataArray> arrays = outputs_of(form.step.problem);
  std::vector<Listed> listed;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    listed.push_back({arrays[i], form.outputs[i].values});
  }
  return listed;
}

// What the array is, then as many of its entries as fit a line.
std::string lines_of(const Listed& listed, int width) {
  const MetadataArray& array = listed.array;
  const bool renamed = !array.published.empty() && array.published != array.name;
  const std::string head =
      fmt::format("  {} {}[{}]{}\n", array.name, name(array.type), array.elements,
                  renamed ? fmt::format(", published as {}", array.published) : "");
  constexpr std::string_view kMore = " ...";
  const auto promised = std::ssize(listed.values);
  if (promised == 0) {
    return head + "    nothing is promised\n";
  }
  std::string line = "   ";
  for (std::int64_t entry = 0; entry < promised; ++entry) {
    const std::string value =
        " " + index_text(array, listed.values[static_cast<std::size_t>(entry)]);
    const bool last = entry + 1 == array.elements;
    const std::size_t wanted = line.size() + value.size() + (last ? 0 : kMore.size());
    if (width > 0 && wanted > static_cast<std::size_t>(width)) {
      return head + line + std::string(kMore) + "\n";
    }
    line += value;
  }
  return head + line + (promised < array.elements ? " (the rest is free)" : "") + "\n";
}

Json json_of(const std::vector<Listed>& arrays) {
  Json json = Json::object();
  for (const Listed& listed : arrays) {
    Json values = Json::array();
    for (const std::int64_t value : listed.values) {
      if (value == kLeftAlone) {
        values.push_back(nullptr);
      } else if (listed.array.type == Index::kFloat32) {
        values.push_back(std::bit_cast<float>(static_cast<std::int32_t>(value)));
      } else {
        values.push_back(value);
      }
    }
    Json entry{{"type", name(listed.array.type)}, {"entries", listed.array.elements}};
    if (!listed.array.published.empty()) {
      entry["published"] = listed.array.published;
    }
    entry["values"] = std::move(values);
    json[std::string(listed.array.name)] = std::move(entry);
  }
  return json;
}

}  // namespace

FormOfCase form_of(const Case& spec, Form form) {
  Case asked = spec;
  asked.metadata.form = form;
  FormOfCase made{draw_metadata(asked, draw_batch(asked), draw_adapters(asked)), {}};
  made.outputs = make_metadata(made.step.problem, made.step.engine);
  return made;
}

std::string form_table(const Case& spec, const FormOfCase& form, int width) {
  const MetadataProblem& problem = form.step.problem;
  std::string text =
      fmt::format("{}: form {} of {} rows, {} sampled rows, {} slots\n", spec.id,
                  name(problem.form), problem.tokens, problem.samples, problem.slots);
  for (const std::vector<Listed>& arrays : {inputs_listed(form), outputs_listed(form)}) {
    for (const Listed& listed : arrays) {
      text += lines_of(listed, width);
    }
  }
  return text;
}

std::string form_json(const Case& spec, const FormOfCase& form) {
  const MetadataProblem& problem = form.step.problem;
  const Json json{{"scenario", spec.scenario},
                  {"case", spec.id},
                  {"form", name(problem.form)},
                  {"tokens", problem.tokens},
                  {"samples", problem.samples},
                  {"slots", problem.slots},
                  {"engine", json_of(inputs_listed(form))},
                  {"arrays", json_of(outputs_listed(form))}};
  return json.dump() + "\n";
}

std::vector<NamedTensor> form_tensors(const FormOfCase& form,
                                      std::vector<std::vector<std::byte>>& kept) {
  const auto type_of = [](const MetadataArray& array) {
    return array.type == Index::kInt64 ? "I64" : array.type == Index::kInt32 ? "I32" : "F32";
  };
  const std::size_t first = kept.size();
  std::vector<NamedTensor> tensors;
  const auto add = [&](std::string_view of, const std::vector<Listed>& arrays) {
    for (const Listed& listed : arrays) {
      std::vector<std::byte> bytes(
          listed.values.size() * static_cast<std::size_t>(listed.array.element_bytes()),
          std::byte{0xFF});  // -1 where an entry is left alone
      put_filled(listed.array, bytes.data(), {listed.values});
      kept.push_back(std::move(bytes));
      tensors.push_back({fmt::format("{}.{}", of, listed.array.name),
                         type_of(listed.array),
                         {std::ssize(listed.values)},
                         nullptr,
                         std::ssize(kept.back())});
    }
  };
  add("engine", inputs_listed(form));
  add(name(form.step.problem.form), outputs_listed(form));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].data = kept[first + i].data();
  }
  return tensors;
}

}  // namespace lora_bench
