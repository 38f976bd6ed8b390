#include <string>
#include <utility>
#include <vector>

#include "scenario/field_kinds.h"
#include "scenario/schema.h"

namespace lora_bench {

namespace {

std::string lists_text(const std::vector<std::vector<std::int64_t>>& lists) {
  std::vector<std::string> texts;
  for (const std::vector<std::int64_t>& list : lists) {
    texts.push_back(kListText(list));
  }
  return kListText(texts);
}

// Of the division and of what adapters bring.
std::vector<Field> fields_of_weights() {
  const auto member = [](auto of_setup) { return at(&Case::setup, of_setup); };
  return {
      choice("layer.kind", member(&LayerSetup::kind),
             "what the layer is to its shards, of op layer",
             {.fallback = "by the model's layer: qkv merged_qkv, gate_up merged_column, o and down "
                          "row, and so "
                          "shared_gate_up and shared_down; shared_up column",
              .when = [](const Case& spec) { return has_base(spec.op); }}),
      integer("layer.tp", member(&LayerSetup::tp), 1, kMaxShards,
              "shards that a layer is divided into"),
      boolean("layer.fully_sharded", member(&LayerSetup::fully_sharded),
              "divide A and h too, as S-LoRA does"),
      integer("layer.kv_heads", member(&LayerSetup::kv_heads), 0, kMaxSlots,
              "heads of k and v of a qkv layer; other kinds ignore it",
              {.fallback = "0: heads of 128 columns"}),
      integer("layer.v_head_size", member(&LayerSetup::v_head_size), 0, kMaxFeatures,
              "columns of a head of v, whose width then follows; of qkv and merged_qkv",
              {.fallback = "0: the width of v divided by kv_heads"}),
      boolean("layer.bias", member(&LayerSetup::bias), "the base of a layer has a bias"),
      boolean("layer.skip_bias", member(&LayerSetup::skip_bias),
              "the base's bias is not added but returned apart"),
      boolean("layer.missing_slices", member(&LayerSetup::missing_slices),
              "adapters have no A and B for some outputs, each for others; of merged kinds, others "
              "ignore it"),
      field_of(
          "layer.packed", "integer or list", member(&LayerSetup::packed),
          fmt::format("integers from 1 to {} that add up to the outputs", kMaxSlices),
          "outputs that each pair of A and B of an adapter covers, in turn; of kinds "
          "merged_column and merged_column_variable",
          {.fallback = "none: one each"},
          [](const Reader& reader, std::vector<std::int64_t>& target, FieldContext&) {
            reader.integers(target, 1, kMaxSlices);
          },
          kListText),
      field_of(
          "layer.missing", "list of lists", member(&LayerSetup::missing),
          fmt::format("lists of integers from 0 to {}, at most one for each slot", kMaxSlices - 1),
          "outputs of which adapters have no A and B, a list for each slot in turn; of merged "
          "kinds",
          {.fallback = "none"},
          [](const Reader& reader, std::vector<std::vector<std::int64_t>>& target, FieldContext&) {
            reader.lists(target, 0, kMaxSlices - 1);
          },
          lists_text),
  };
}

// Of what becomes of the result.
std::vector<Field> fields_of_result() {
  const auto member = [](auto of_setup) { return at(&Case::setup, of_setup); };
  return {
      boolean("layer.gather_output", member(&LayerSetup::gather_output),
              "every shard of a column, merged or qkv layer ends with all columns, in their order"),
      boolean(
          "layer.input_split", member(&LayerSetup::input_split),
          "each shard's columns of x lie by themselves, as the layer before left them; of a row "
          "layer"),
      boolean("layer.reduce_results", member(&LayerSetup::reduce_results),
              "shards of a row layer end with the sum of their terms (true), or each with its own"),
      choice(
          "layer.comm", member(&LayerSetup::comm),
          "what shards exchange their results through while they are timed; nccl: each has a GPU",
          {.fallback = "none: all shards on one device, each timed alone"}),
      integer("layer.padding", member(&LayerSetup::padding), 1, kMaxSlots,
              "columns that the shards of logits together are a multiple of; what is too many is "
              "cut off"),
      real("layer.soft_cap", member(&LayerSetup::soft_cap), 0, 1e6,
           "cap of logits: cap * tanh(y / cap)",
           {.allowed = "a number from 0 to 1e6", .fallback = "0: none"}),
      real("layer.logit_scale", member(&LayerSetup::logit_scale), 1e-6, 1e6,
           "of logits, after the cap", {.allowed = "a number from 1e-6 to 1e6"}),
      integer("layer.extra_vocabulary", member(&LayerSetup::extra_vocabulary), 0, kMaxFeatures,
              "rows that each adapter adds to the table of a vocab_embedding layer, of ids from "
              "layer.in on"),
      choice("layer.gather_to", member(&LayerSetup::gather_to),
             "shards that end with the logits: all, or the first, which alone runs the adapters"),
      choice("layer.overlap", member(&LayerSetup::overlap),
             "how the adapters' part of a layer runs beside its base, see layers.md"),
      choice("layer.base_algorithm", member(&LayerSetup::base_algorithm),
             "the base product on a GPU: of what cuBLASLt names the first or the quickest when "
             "timed; auto: a kernel of our own for few rows, else the first"),
  };
}

}  // namespace

// What is asked of a whole layer beside its shape.
std::vector<Field> fields_of_layer() {
  std::vector<Field> rows = fields_of_weights();
  for (Field& row : fields_of_result()) {
    rows.push_back(std::move(row));
  }
  for (Field& row : rows) {
    row.of_op_alone = Op::kLayer;
    row.about = About::kProducts;
  }
  return rows;
}

}  // namespace lora_bench
