#include <string>
#include <utility>
#include <vector>

#include "scenario/field_kinds.h"
#include "scenario/schema.h"

namespace lora_bench {

std::vector<Field> of_products(std::vector<Field> rows) {
  for (Field& row : rows) {
    if (row.doc.path != "op" && row.about == About::kAnyOp) {
      row.about = About::kProducts;
    }
  }
  return rows;
}

std::vector<Field> of_adapters(std::vector<Field> rows) {
  for (Field& row : rows) {
    row.about = row.about == About::kAnyOp ? About::kAdapters : row.about;
  }
  return rows;
}

std::vector<Field> fields_of_op() {
  const auto always = [](const Case&) { return true; };
  const std::vector<std::string> dtypes{"bf16", "fp16", "fp32"};
  return of_products({
      choice("op", at(&Case::op), "what is computed", {.when = always, .alone_in_ids = true}),
      choice("dtype", at(&Case::dtype), "storage of x, A, B, bias and y",
             {.when = always, .about = About::kX, .alone_in_ids = true}, dtypes),
      choice("intermediate", at(&Case::intermediate),
             "storage of h; in eight bits op linear quantises it between its two sums, each slice "
             "of a token or each `activations.group` of its lanes, as `quantiser` says",
             {.allowed = "fp32 or the same as `dtype`; beside `activations.dtype` e4m3, e5m2 too"},
             {"bf16", "fp16", "fp32", "e4m3", "e5m2"}),
      choice("scale_at", at(&Case::scale_at), "which half applies the adapter's scale",
             {.also = " (embedding: expand)", .fallback = "shrink (embedding: expand)"}),
      boolean("add_inputs", at(&Case::add_inputs), "add to y (true) or overwrite it (false)",
              {.instead_of_layer = kOwnRows}),
      choice("idle_rows", at(&Case::idle_rows),
             "what an op that overwrites y leaves in rows that no adapter acts on: y as it was, or "
             "zeros",
             {.instead_of_layer = kOwnRows}),
      choice("inputs", at(&Case::inputs),
             "of an op that shrinks: one x for all slices, or an own one for each",
             {.instead_of_layer = "op linear"}),
      boolean("shrink_adds", at(&Case::shrink_adds),
              "op shrink adds to an h that is given; proved, not timed",
              {.instead_of_layer = "op shrink"}),
  });
}

namespace {

template <typename Place>
Field eight_bits(std::string path, Place place, std::string meaning, Said said) {
  return field_of(
      std::move(path), "word", place, "e4m3, e5m2", std::move(meaning), std::move(said),
      [](const Reader& reader, std::optional<Dtype>& target, FieldContext&) {
        Dtype chosen = Dtype::kE4m3;
        reader.choice(chosen, {"e4m3", "e5m2"});
        target = chosen;
      },
      [](const std::optional<Dtype>& dtype) { return std::string(dtype ? name(*dtype) : "none"); });
}

// An adapter of a layer reads the x that the base product reads.
constexpr const char* kOpsOfActivations = "op linear, shrink or expand";

}  // namespace

std::vector<Field> fields_of_eight_bits() {
  const auto weights = [](auto of_weights) { return at(&Case::weights, of_weights); };
  const auto activations = [](auto of_x) { return at(&Case::activations, of_x); };
  return {
      eight_bits(
          "weights.dtype", weights(&WeightsSpec::dtype),
          "storage of A and B in eight bits, each number times a scale; bias stays as `dtype`",
          {.fallback = "none: as `adapters.dtype`, without scales", .about = About::kProducts}),
      choice("weights.scale", weights(&WeightsSpec::scale),
             "which numbers of an adapter's A, and of its B, have a scale together: all of a "
             "slice, a lane of A and an output of B, or a block",
             {.fallback = "channel", .about = About::kProducts}, {"tensor", "channel", "block"}),
      field_of(
          "weights.block", "list", weights(&WeightsSpec::block),
          fmt::format("two integers from 1 to {}", kMaxFeatures),
          "of scale block: lanes and input features of a block of A, outputs and lanes of one of B",
          {.fallback = "[128, 128]", .about = About::kProducts},
          [](const Reader& reader, std::vector<std::int64_t>& target, FieldContext&) {
            reader.integers(target, 1, kMaxFeatures);
          },
          kListText),
      eight_bits("activations.dtype", activations(&ActivationsSpec::dtype),
                 "storage of x, or of the h that op expand is given, in eight bits beside such "
                 "weights, each number times a scale; y and bias stay as `dtype`. Of op quantise "
                 "what x becomes",
                 {.fallback = "none: as `dtype`, without scales; of op quantise e4m3",
                  .instead_of_layer = kOpsOfActivations,
                  .about = About::kX}),
      choice("activations.scale", activations(&ActivationsSpec::scale),
             "which numbers of x have a scale together: all of it (of each slice's where `inputs` "
             "is per_slice), a token's, or a run of a token's; of h likewise, in each slice",
             {.fallback = "token", .instead_of_layer = kOpsOfActivations, .about = About::kX},
             {"tensor", "token", "block"}),
      integer("activations.group", activations(&ActivationsSpec::group), 1, kMaxFeatures,
              "of scale block: input features of a block of x, lanes of one of h",
              {.fallback = "columns of `weights.block`, or 128",
               .instead_of_layer = kOpsOfActivations,
               .about = About::kX}),
  };
}

std::vector<Field> fields_of_quantiser() {
  const auto quantiser = [](auto of_quantiser) { return at(&Case::quantiser, of_quantiser); };
  // A scale below would not be a normal number, nor its inverse.
  constexpr double kLeastScale = 1e-30;
  std::vector<Field> rows{
      choice("quantiser.scales", quantiser(&QuantiserSpec::scales),
             "whether op quantise makes the scales of x, or is given them"),
      choice("quantiser.convert", quantiser(&QuantiserSpec::convert),
             "x (or h) / scale, or x times the nearest of 1 / scale, each rounded to fp32"),
      real("quantiser.least_amax", quantiser(&QuantiserSpec::least_amax), 0, 1e30,
           "scales that are made are those of a largest magnitude of at least this"),
      field_of(
          "quantiser.least_scale", "number", quantiser(&QuantiserSpec::least_scale),
          fmt::format("a number from {} to 1", kLeastScale), "the least scale that is made",
          {.fallback = "1 / (512 x the largest number of `activations.dtype`)"},
          [](const Reader& reader, std::optional<double>& target, FieldContext&) {
            reader.optional_real(target, kLeastScale, 1);
          },
          kOptionalText),
      boolean("quantiser.power_of_two", quantiser(&QuantiserSpec::power_of_two),
              "scales that are made are raised to the next power of two (ue8m0)"),
  };
  for (Field& row : rows) {
    row.of_op_alone = Op::kQuantise;
    row.of_quantised_h = row.doc.path != "quantiser.scales";
  }
  return rows;
}

}  // namespace lora_bench
