#include <string>
#include <utility>
#include <vector>

#include "scenario/field_kinds.h"
#include "scenario/schema.h"

namespace lora_bench {
namespace {

constexpr const char* kRoutingLaws =
    "uniform, balanced, identical, {zipf: 0 to 16}, {hot: {experts: N, share: P}}, {grouped: "
    "{groups: N, groups_per_token: M}}, {trace: FILE}; per_adapter: 0 to 1 beside zipf or hot";

// A law with the numbers that it has.
std::string law_text(const RoutingLaw& law) {
  switch (law.kind) {
    case Routing::kZipf:
      return fmt::format("zipf: {}", law.parameter);
    case Routing::kHot:
      return fmt::format("hot: {{experts: {}, share: {}}}", law.hot, law.parameter);
    case Routing::kGrouped:
      return fmt::format("grouped: {{groups: {}, groups_per_token: {}}}", law.groups,
                         law.groups_per_token);
    case Routing::kTrace:
      return fmt::format("trace: {}", law.trace_file);
    default:
      return "";
  }
}

std::string routing_text(const RoutingLaw& law) {
  const std::string text = law_text(law);
  if (text.empty()) {
    return std::string(name(law.kind));
  }
  return law.per_adapter == 0 ? fmt::format("{{{}}}", text)
                              : fmt::format("{{{}, per_adapter: {}}}", text, law.per_adapter);
}

Field field_of_routing() {
  return field_of(
      kRouting, "word or map", at(&Case::routing), kRoutingLaws,
      "the law by which tokens choose experts, all of a token different", {},
      [](const Reader& reader, RoutingLaw& target, FieldContext& context) {
        reader.routing(target, context.routing_traces, context.folder);
      },
      routing_text);
}

}  // namespace

std::vector<Field> fields_of_experts() {
  const auto member = [](auto of_experts) { return at(&Case::experts, of_experts); };
  std::vector<Field> rows{
      integer("experts.count", member(&ExpertsSpec::count), 1, kMaxExperts,
              "experts of the layer, each with an A and a B of every adapter; of op linear, shrink "
              "and expand, and of op metadata in form align",
              {.also = fmt::format(", times slots at most {}", kMaxSlots),
               .fallback = "of the model's layer, else none"}),
      integer("experts.top_k", member(&ExpertsSpec::top_k), 1, kMaxTopK,
              "experts that a token is sent to, all different",
              {.also = ", at most count", .fallback = "of the model, else 1"}),
      choice("experts.part", member(&ExpertsSpec::part),
             "w13: the experts of a token read one row of x, and each makes a row of y; w2: each "
             "has a row of x of its own",
             {.fallback = "of the model's layer, else w13", .about = About::kProducts}),
      choice("experts.weight_at", member(&ExpertsSpec::weight_at),
             "where the router's weights are multiplied: output, in what w2 makes; input, in the x "
             "of w13; none; the other part has no weights",
             {.fallback = "of the model, else output", .about = About::kProducts}),
      boolean("experts.renormalise", member(&ExpertsSpec::renormalise),
              "the weights of a token add up to `scaling` (true), or are shares of all experts "
              "times it",
              {.fallback = "of the model, else true", .about = About::kProducts}),
      real("experts.scaling", member(&ExpertsSpec::scaling), 1e-6, 1e6,
           "what the router's weights are multiplied by",
           {.allowed = "a number from 1e-6 to 1e6",
            .fallback = "of the model, else 1",
            .about = About::kProducts}),
  };
  for (Field& row : rows) {
    // A model may say another value than the usual one, so that a case of it says what holds.
    row.is_said = [is_unusual = std::move(row.is_said)](const Case& spec) {
      return (spec.experts.any() && !spec.layer.model.empty()) || is_unusual(spec);
    };
  }
  rows.push_back(share("experts.missing", member(&ExpertsSpec::missing),
                       "share of the experts that each adapter has no A and B for, each others",
                       {.about = About::kProducts}));
  rows.push_back(field_of_routing());
  return rows;
}

}  // namespace lora_bench
