#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <utility>

#include "verify/array_mutants.h"
#include "verify/metadata_faults.h"
#include "verify/metadata_proof.h"

namespace lora_bench {
namespace {

class FaultyBuilder final : public MetadataBuilder {
 public:
  explicit FaultyBuilder(const MetadataFault& fault) : fault_(fault) {}

  [[nodiscard]] Support supports(const MetadataProblem& problem,
                                 const DeviceFacts&) const override {
    return problem.form == fault_.doc.form
               ? Support{}
               : Support{false, fmt::format("a fault of form {}", name(fault_.doc.form))};
  }

  void launch(const MetadataProblem& problem, const ArrayOperands& operands,
              Stream) const override {
    const EngineStep engine = engine_at(problem, operands.inputs);
    std::vector<FilledArray> made = make_metadata(problem, engine);
    if (first_.empty()) {
      first_ = made;
    }
    const std::vector<std::int32_t> adapters = engine.adapters_of(
        problem.form == Form::kSampler ? engine.request_of_sample : engine.request_of_token);
    if (fault_.spoil != nullptr) {
      fault_.spoil({problem, engine, adapters, made, first_});
    }
    const std::vector<MetadataArray> outputs = outputs_of(problem);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      auto* const to = static_cast<std::byte*>(operands.outputs[i]);
      if (fault_.writes_past) {
        made[i].values.push_back(0);
      }
      put_filled(outputs[i], to, made[i]);
    }
    if (fault_.writes_input && !adapters.empty()) {
      auto* const rows = static_cast<std::byte*>(const_cast<void*>(operands.inputs.front()));
      put_index(inputs_of(problem).front(), rows, 0, adapters.front());
    }
  }

 private:
  const MetadataFault& fault_;
  mutable std::vector<FilledArray> first_;
};

class MetadataMutant final : public ArrayMutant {
 public:
  explicit MetadataMutant(const MetadataFault& fault)
      : ArrayMutant(fault.doc.fault, fault.doc.meaning, lora_bench::name(Op::kMetadata)),
        builder_(fault) {}

  [[nodiscard]] const MetadataBuilder* metadata() const override { return &builder_; }

 private:
  FaultyBuilder builder_;
};

const MetadataBuilder* builder_of(const Backend& backend) { return backend.metadata(); }

Verdict proved_metadata(const MetadataStep& step, const MetadataBuilder& builder, Memory& memory) {
  return verify_metadata(step, builder, memory, true);
}

Case metadata_case(const std::string& id, Form form) {
  Case spec;
  spec.scenario = "self-test";
  spec.id = id;
  spec.op = Op::kMetadata;
  spec.metadata.form = form;
  spec.metadata.samples = 2;
  spec.batch.decode = 24;
  spec.batch.prefill = {40, 40, 7, 19};
  spec.plan.max_tokens = 140;
  spec.adapters.slots = 6;
  spec.adapters.rank.list = {8, 0, 16};
  spec.adapters.max_rank = 16;
  spec.adapters.scale = {0.5, 2};
  spec.no_adapter = 0.25;
  spec.skew.kind = Skew::kZipf;
  spec.skew.parameter = 1;
  spec.prefill_skew = spec.skew;
  if (form == Form::kAlign) {
    spec.experts.count = 9;
    spec.experts.top_k = 3;
  }
  return spec;
}

// Experts of each token, all different, of which one in five is elsewhere; the one before the last
// has no pair.
std::vector<std::int32_t> told_choices(std::size_t tokens, const ExpertsSpec& experts) {
  const auto count = static_cast<std::size_t>(experts.count);
  const auto top_k = static_cast<std::size_t>(experts.top_k);
  std::vector<std::int32_t> choices;
  for (std::size_t pair = 0; pair < tokens * top_k; ++pair) {
    const std::size_t token = pair / top_k;
    const auto expert = static_cast<std::int32_t>((token * token + pair % top_k * 2) % count);
    const bool elsewhere = (token * 7 + pair) % 5 == 0;
    choices.push_back(elsewhere || expert + 2 == experts.count ? -1 : expert);
  }
  return choices;
}

MetadataStep step_of_case(const Case& spec) {
  Batch batch = draw_batch(spec);
  if (spec.experts.any()) {
    batch.expert_of_choice = told_choices(batch.adapter_of_token.size(), spec.experts);
  }
  return draw_metadata(spec, batch, draw_adapters(spec));
}

}  // namespace

std::span<const MetadataFaultDoc> metadata_faults() {
  static const std::vector<MetadataFaultDoc> kDocs = [] {
    std::vector<MetadataFaultDoc> docs;
    for (const MetadataFault& fault : known_metadata_faults()) {
      docs.push_back(fault.doc);
    }
    return docs;
  }();
  return kDocs;
}

std::unique_ptr<Backend> make_metadata_mutant(std::string_view fault) {
  for (const MetadataFault& known : known_metadata_faults()) {
    if (known.doc.fault == fault) {
      return std::make_unique<MetadataMutant>(known);
    }
  }
  return nullptr;
}

std::vector<TellingMetadata> telling_metadata() {
  std::vector<TellingMetadata> steps;
  for (const std::string_view form_name : EnumNames<Form>::kNames) {
    const Form form = *named<Form>(form_name);
    const auto add = [&](const char* what, auto change) {
      Case spec = metadata_case(fmt::format("{}-{}", form_name, what), form);
      change(spec);
      steps.push_back({spec.id, step_of_case(spec)});
    };
    add("mixed", [](Case&) {});
    add("neighbours", [](Case& spec) {
      spec.order = Order::kSorted;
      spec.plan.idle_segments = true;
    });
    add("none-first", [](Case& spec) {
      spec.order = Order::kAsArrived;
      spec.skew.kind = spec.prefill_skew.kind = Skew::kTrace;
      spec.skew.trace = spec.prefill_skew.trace = {-1, 1, 0, -1, 1};
      spec.plan.idle_segments = true;
      spec.plan.largest_chunk = 32;
    });
    add("all-slots", [](Case& spec) {
      spec.adapters.slots = 2;
      spec.adapters.rank.list = {8};
      spec.adapters.scale = {1};
      spec.adapters.active = 2;
    });
    add("one-row", [](Case& spec) {
      spec.batch = {1, {}};
      spec.plan.max_tokens = 0;
      spec.no_adapter = 0;
      spec.adapters.slots = 1;
      spec.adapters.rank.list = {8};
      spec.adapters.scale = {1};
    });
    add("large-table", [](Case& spec) {
      spec.adapters.slots = 300;
      spec.skew.kind = spec.prefill_skew.kind = Skew::kUniform;
      spec.metadata.vocabulary = 16000000;
    });
  }
  return steps;
}

SelfTestRow hunt_metadata(const MetadataFaultDoc& doc, const std::vector<TellingMetadata>& steps) {
  SelfTestRow row =
      hunt_arrays(doc.fault, steps, make_metadata_mutant, builder_of, proved_metadata);
  row.named_right = doc.hypothesis.empty() || row.hypothesis == doc.hypothesis;
  return row;
}

void try_right_metadata(const std::vector<TellingMetadata>& steps, SelfTestReport& report) {
  try_right_arrays(steps, builder_of, proved_metadata, report);
}

}  // namespace lora_bench
