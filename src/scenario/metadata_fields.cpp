#include <algorithm>
#include <string>
#include <vector>

#include "scenario/field_kinds.h"
#include "scenario/schema.h"

namespace lora_bench {
namespace {

constexpr std::int64_t kMaxSamples = 64;
constexpr std::int64_t kMaxRequests = std::int64_t{1} << 24;

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
      field_of(
          "metadata.largest_chunk", "integer", member(&MetadataSpec::largest_chunk),
          "16, 32, 64, 128",
          "most rows of a segment of form chunked; fewer than 256 tokens have 32, fewer than 64 16",
          {},
          [](const Reader& reader, std::int64_t& target, FieldContext&) {
            std::string word;
            reader.choice(word, {"16", "32", "64", "128"});
            target = word.empty() ? target : std::stoll(word);
          },
          kPlainText),
      boolean("metadata.idle_segments", member(&MetadataSpec::idle_segments),
              "rows without an adapter have segments of one more slot, of rank 0, too"),
  };
  for (Field& row : rows) {
    row.of_op_alone = Op::kMetadata;
  }
  return rows;
}

}  // namespace lora_bench
