#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "scenario/field_kinds.h"
#include "scenario/schema.h"

namespace lora_bench {
namespace {

constexpr std::int64_t kMaxSamples = 64;
constexpr std::int64_t kMaxRequests = std::int64_t{1} << 24;

// What a kernel takes together: rows, or pairs of a row and an expert.
template <typename Place>
Field power_of_two(const char* path, Place place, const char* meaning, Said said = {}) {
  return field_of(
      path, "integer", place, "16, 32, 64, 128", meaning, std::move(said),
      [](const Reader& reader, std::int64_t& target, FieldContext&) {
        std::string word;
        reader.choice(word, {"16", "32", "64", "128"});
        target = word.empty() ? target : std::stoll(word);
      },
      kPlainText);
}

}  // namespace

std::vector<Field> fields_of_metadata() {
  const auto member = [](auto of_metadata) { return at(&Case::metadata, of_metadata); };
  std::vector<Field> rows{
      choice("form", member(&MetadataSpec::form),
             "which arrays op metadata makes of a batch, see plan.md",
             {.when = [](const Case& spec) { return spec.op == Op::kMetadata; },
              .alone_in_ids = true}),
      integer("metadata.samples", member(&MetadataSpec::samples), 0, kMaxSamples,
              "rows of each sequence whose logits are taken, of form sampler"),
      integer("metadata.requests", member(&MetadataSpec::requests), 0, kMaxRequests,
              "entries of the table from request to slot; those of no sequence are never read",
              {.also = ", at least the sequences", .fallback = "0: twice the sequences"}),
      integer("metadata.vocabulary", member(&MetadataSpec::vocabulary), 1, kMaxFeatures,
              "rows of the base's embedding table, of form embedding"),
      integer("metadata.extra_vocabulary", member(&MetadataSpec::extra_vocabulary), 0, kMaxFeatures,
              "rows that an adapter may add to it"),
      power_of_two("metadata.block", member(&MetadataSpec::block),
                   "pairs of a token and an expert that lists of form align are padded to"),
  };
  for (Field& row : rows) {
    row.of_op_alone = Op::kMetadata;
  }
  return rows;
}

// What is asked of the plan beside the batch.
std::vector<Field> fields_of_plan() {
  const auto member = [](auto of_plan) { return at(&Case::plan, of_plan); };
  return {
      integer("plan.max_tokens", member(&PlanSpec::max_tokens), 0, kMaxTokens,
              "rows that a launch is captured for; those beyond the batch have no adapter",
              {.also = ", at least the batch's tokens",
               .fallback = "0: the batch's own",
               .instead_of_layer = "op linear"}),
      integer("plan.max_slots", member(&PlanSpec::max_slots), 0, kMaxSlots,
              "adapters in use that `auto` and `panel` are captured for; see docs/plan.md",
              {.also = ", at most adapters.slots",
               .fallback = "0: the batch's own",
               .instead_of_layer = "op linear",
               .about = About::kProducts}),
      choice("plan.made_on", member(&PlanSpec::made_on),
             "who groups the rows: the host before any launch, or a kernel at the start of each",
             {.instead_of_layer = "op linear", .about = About::kProducts}),
      choice("plan.form", member(&PlanSpec::form),
             "in which index arrays an op is handed its plan, see plan.md; backends that take "
             "sorted alone are SKIPPED",
             {.instead_of_layer = "op linear", .about = About::kProducts}),
      choice("plan.grid", member(&PlanSpec::grid),
             "of the published forms, groups that a launch is made for: all that a batch over "
             "these slots may have, or those of this one",
             {.instead_of_layer = "op linear", .about = About::kProducts}),
      power_of_two(
          "plan.largest_chunk", member(&PlanSpec::largest_chunk),
          "most rows of a segment of form chunked; fewer than 256 tokens have 32, fewer than 64 16",
          {.instead_of_layer = "op linear", .about = About::kAdapters}),
      boolean("plan.idle_segments", member(&PlanSpec::idle_segments),
              "of form chunked, rows without an adapter have segments of one more slot, of rank 0",
              {.instead_of_layer = "op linear", .about = About::kAdapters}),
  };
}

}  // namespace lora_bench
