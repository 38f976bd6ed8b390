#include "workload/semantics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

namespace lora_bench {

namespace {

std::string said_if(bool asked, const char* text) { return asked ? text : ""; }

// Of slices without columns nobody asks.
std::string some_biased(const Problem& problem) {
  std::vector<std::int64_t> with;
  bool without = false;
  for (std::int64_t slice = 0; slice < problem.slices() && has_expand(problem.op); ++slice) {
    if (problem.widths[static_cast<std::size_t>(slice)] > 0) {
      if (problem.has_bias(slice)) {
        with.push_back(slice);
      }
      without = without || !problem.has_bias(slice);
    }
  }
  return with.empty() || !without
             ? ""
             : fmt::format("adapters.bias_slices: [{}]", fmt::join(with, ", "));
}

Role any_weights(const Problem& problem) { return has_shrink(problem.op) ? Role::kA : Role::kB; }

// The dtype of A, of B in an expand.
std::string other_dtype(const Problem& problem) {
  return problem.dtype.alike() || problem.has_scaled_weights()
             ? ""
             : fmt::format("adapters.dtype: {}", name(problem.dtype[any_weights(problem)]));
}

std::string scaled_weights(const Problem& problem) {
  if (!problem.has_scaled_weights()) {
    return "";
  }
  std::string text =
      fmt::format("weights.dtype: {}, weights.scale: {}", name(problem.dtype[any_weights(problem)]),
                  name(problem.weights_scale));
  if (problem.weights_scale == WeightsScale::kBlock) {
    text += fmt::format(", weights.block: [{}, {}]", problem.block_rows, problem.block_columns);
  }
  return text;
}

std::string scaled_activations(const Problem& problem, Role role) {
  if (!problem.has_scales(role)) {
    return "";
  }
  const std::string text = fmt::format("activations.dtype: {}, activations.scale: {}",
                                       name(problem.dtype[role]), name(problem.activations_scale));
  return problem.activations_scale == ActivationsScale::kBlock
             ? fmt::format("{}, activations.group: {}", text, problem.activations_group)
             : text;
}

std::string quantised_h(const Problem& problem) {
  return problem.h_quantiser ? fmt::format("intermediate: {} ({})", name(problem.kept_h()),
                                           rule_text(problem.h_quantiser->rule))
                             : "";
}

// What is not as it is by default, of the operands that the op has.
std::string other_layout(const Problem& problem) {
  const Layout& layout = problem.layout;
  const auto said = [](const char* field, std::int64_t stride) {
    return fmt::format("{}: {}", field, stride);
  };
  std::vector<std::string> all;
  if (!problem.separate()) {
    all.push_back(fmt::format("adapters.placing: {}", name(layout.placing)));
  }
  if (layout.x_column_stride != 1 && has_shrink(problem.op)) {
    all.push_back(said("layer.x_column_stride", layout.x_column_stride));
  }
  if (layout.a_gap != 0 && has_shrink(problem.op)) {
    all.push_back(said("adapters.a_stride", problem.a_pitch()));
  }
  if (layout.b_gap != 0 && has_expand(problem.op)) {
    all.push_back(said("adapters.b_stride", problem.b_pitch()));
  }
  if (layout.h_gap != 0) {
    all.push_back(said("layer.h_stride", problem.h_pitch()));
  }
  return fmt::format("{}", fmt::join(all, ", "));
}

}  // namespace

const std::array<SemanticDoc, kSemantics>& semantic_docs() {
  static constexpr std::array<SemanticDoc, kSemantics> kDocs{{
      {Semantic::kZeroedIdleRows, "it leaves rows that no adapter acts on as they are",
       [](const Problem& problem) {
         return said_if(problem.zeroes_idle_rows(), "idle_rows: zeroed");
       }},
      {Semantic::kAddingShrink, "it overwrites h",
       [](const Problem& problem) { return said_if(problem.adds_to_h(), "shrink_adds: true"); }},
      {Semantic::kBiasOfSomeSlices, "it has a bias of all or of none", some_biased},
      {Semantic::kRankZeroBias, "an adapter of rank 0 does nothing there",
       [](const Problem& problem) {
         return said_if(problem.biases_rank0(), "adapters.rank0_bias: true");
       }},
      {Semantic::kOtherDtypes, "x, A, B, bias and y have one dtype there", other_dtype},
      {Semantic::kOwnInputs, "all slices have one x there",
       [](const Problem& problem) { return said_if(problem.own_inputs(), "inputs: per_slice"); }},
      {Semantic::kKernelForm, "it reads other arrays of a plan",
       [](const Problem& problem) {
         return said_if(problem.plan_form == PlanForm::kKernel, "plan.form: kernel");
       }},
      {Semantic::kChunkedForm, "it reads other arrays of a plan",
       [](const Problem& problem) {
         return said_if(problem.plan_form == PlanForm::kChunked, "plan.form: chunked");
       }},
      {Semantic::kOtherLayouts, "operands lie apart and without gaps there", other_layout},
      {Semantic::kScaledWeights, "weights of eight bits are not read there", scaled_weights},
      {Semantic::kScaledActivations, "an x of eight bits is not read there",
       [](const Problem& problem) { return scaled_activations(problem, Role::kX); }},
      {Semantic::kScaledH, "an h of eight bits is not read there",
       [](const Problem& problem) { return scaled_activations(problem, Role::kH); }},
      {Semantic::kQuantisedH, "h is not quantised there", quantised_h},
      {Semantic::kSharedX, "each row has a row of x of its own there",
       [](const Problem& problem) { return said_if(problem.shares_x(), "experts.part: w13"); }},
      {Semantic::kRowFactors, "it multiplies no row by a factor",
       [](const Problem& problem) {
         return said_if(problem.has_factors(), "experts.weight_at: input or output");
       }},
  }};
  return kDocs;
}

const SemanticDoc& doc_of(Semantic semantic) {
  return semantic_docs().at(static_cast<std::size_t>(semantic));
}

std::string semantics_text(const Problem& problem) {
  std::string text;
  for (const SemanticDoc& doc : semantic_docs()) {
    if (const std::string asked = doc.asked(problem); !asked.empty()) {
      text += (text.empty() ? "" : ", ") + asked;
    }
  }
  return text;
}

std::optional<Semantic> refused_semantic(const Problem& problem, Semantics taken) {
  for (const SemanticDoc& doc : semantic_docs()) {
    if (!taken.has(doc.semantic) && !doc.asked(problem).empty()) {
      return doc.semantic;
    }
  }
  return std::nullopt;
}

std::string semantics_refused(const Problem& problem, Semantics taken) {
  const std::optional<Semantic> refused = refused_semantic(problem, taken);
  return refused ? fmt::format("{}: {}", doc_of(*refused).asked(problem), doc_of(*refused).refusal)
                 : "";
}

}  // namespace lora_bench
