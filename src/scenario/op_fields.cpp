#include <string>
#include <utility>
#include <vector>

#include "scenario/field_kinds.h"
#include "scenario/schema.h"

namespace lora_bench {

std::vector<Field> of_products(std::vector<Field> rows) {
  for (Field& row : rows) {
    row.of_products = row.doc.path != "op";
  }
  return rows;
}

std::vector<Field> fields_of_op() {
  const auto always = [](const Case&) { return true; };
  const std::vector<std::string> dtypes{"bf16", "fp16", "fp32"};
  return of_products({
      choice("op", at(&Case::op), "what is computed", {.when = always, .alone_in_ids = true}),
      choice("dtype", at(&Case::dtype), "storage of x, A, B, bias and y",
             {.when = always, .alone_in_ids = true}, dtypes),
      choice("intermediate", at(&Case::intermediate), "storage of h",
             {.allowed = "fp32 or the same as `dtype`"}, dtypes),
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

std::vector<Field> fields_of_eight_bits() {
  const auto weights = [](auto of_weights) { return at(&Case::weights, of_weights); };
  return {
      field_of(
          "weights.dtype", "word", weights(&WeightsSpec::dtype), "e4m3, e5m2",
          "storage of A and B in eight bits, each number times a scale; bias stays as `dtype`",
          {.fallback = "none: as `adapters.dtype`, without scales", .of_products = true},
          [](const Reader& reader, std::optional<Dtype>& target, FieldContext&) {
            Dtype chosen = Dtype::kE4m3;
            reader.choice(chosen, {"e4m3", "e5m2"});
            target = chosen;
          },
          [](const std::optional<Dtype>& dtype) {
            return std::string(dtype ? name(*dtype) : "none");
          }),
      choice("weights.scale", weights(&WeightsSpec::scale),
             "which numbers of an adapter's A, and of its B, have a scale together: all of a "
             "slice, a lane of A and an output of B, or a block",
             {.fallback = "channel", .of_products = true}, {"tensor", "channel", "block"}),
      field_of(
          "weights.block", "list", weights(&WeightsSpec::block),
          fmt::format("two integers from 1 to {}", kMaxFeatures),
          "of scale block: lanes and input features of a block of A, outputs and lanes of one of B",
          {.fallback = "[128, 128]", .of_products = true},
          [](const Reader& reader, std::vector<std::int64_t>& target, FieldContext&) {
            reader.integers(target, 1, kMaxFeatures);
          },
          kListText),
  };
}

}  // namespace lora_bench
