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

}  // namespace lora_bench
