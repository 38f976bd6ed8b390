#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "scenario/case.h"
#include "workload/array_shape.h"
#include "workload/batch.h"

namespace lora_bench {

// What op metadata makes of a step, and what of: everything that is not an address or an entry of
// an array. A launch serves any step of these sizes; rows that a step has not have no request.
struct MetadataProblem {
  Form form = Form::kKernel;
  std::int64_t tokens = 0;    // rows
  std::int64_t samples = 0;   // rows whose logits are taken
  std::int64_t requests = 0;  // entries of the table from request to slot
  std::int64_t slots = 0;
  std::int64_t vocabulary = 0, extra_vocabulary = 0;
  std::int64_t chunk = 0;  // most rows of a segment
  bool idle_segments = false;
  // Of form align alone: what tokens choose from, experts of each, pairs of a block.
  std::int64_t experts = 0, top_k = 0, block = 0;

  // Slots that segments may be of.
  [[nodiscard]] std::int64_t segment_slots() const { return slots + (idle_segments ? 1 : 0); }
  // Segments that no step of these sizes exceeds.
  [[nodiscard]] std::int64_t most_segments() const;
  // Pairs of a token and an expert that it chose, and entries that the list of a slot has room for.
  [[nodiscard]] std::int64_t pairs() const { return tokens * top_k; }
  [[nodiscard]] std::int64_t most_pairs() const;
  [[nodiscard]] bool operator==(const MetadataProblem&) const = default;
};

// What an engine has at the start of a step. A request is a sequence; its id is an index of the
// table. Of entries that no row names nothing is promised.
struct EngineStep {
  std::vector<std::int32_t> request_of_token;   // [tokens], -1 = none
  std::vector<std::int32_t> request_of_sample;  // [samples], -1 = none
  std::vector<std::int32_t> slot_of_request;    // [requests], -1 = no adapter
  std::vector<std::int32_t> rank;               // [slots]
  std::vector<float> scale;                     // [slots]
  std::vector<std::int32_t> expert_of_choice;   // [tokens, top_k], -1 = elsewhere

  // Of each row, -1 = none.
  [[nodiscard]] std::vector<std::int32_t> adapters_of(const std::vector<std::int32_t>& rows) const;
  [[nodiscard]] bool operator==(const EngineStep&) const = default;
};

// A case of op metadata, drawn.
struct MetadataStep {
  MetadataProblem problem;
  EngineStep engine;
};
// Throws UsageError for form align of a case without experts.
[[nodiscard]] MetadataStep draw_metadata(const Case& spec, const Batch& batch,
                                         const Adapters& adapters);

enum class Index : std::uint8_t { kInt32, kInt64, kFloat32 };
template <>
struct EnumNames<Index> {
  static constexpr std::array<std::string_view, 3> kNames{"int32", "int64", "float32"};
};

// One array that op metadata reads or writes.
struct MetadataArray {
  std::string_view name;       // "token_order"
  std::string_view published;  // "token_indices_sorted_by_lora_ids"; "" for what an engine has
  Index type = Index::kInt32;
  std::int64_t elements = 0;

  [[nodiscard]] std::int64_t element_bytes() const { return type == Index::kInt64 ? 8 : 4; }
  [[nodiscard]] std::int64_t bytes() const { return elements * element_bytes(); }
};
// In the order of ArrayOperands (ops/backend.h).
[[nodiscard]] std::vector<MetadataArray> inputs_of(const MetadataProblem& problem);
[[nodiscard]] std::vector<MetadataArray> outputs_of(const MetadataProblem& problem);
[[nodiscard]] ArrayShapes shapes_of(const std::vector<MetadataArray>& arrays);
// The bytes of the inputs, in that order.
[[nodiscard]] std::vector<std::vector<std::byte>> input_bytes(const MetadataProblem& problem,
                                                              const EngineStep& engine);

// The step that lies at these addresses of host memory, in the order of `inputs_of`.
[[nodiscard]] EngineStep engine_at(const MetadataProblem& problem,
                                   const std::vector<const void*>& inputs);

// The entries of an output that the form promises, in the order of `outputs_of`: all, or those
// before a count that another output holds. A float is its bits; kLeftAlone (plan/forms.h) is an
// entry that nobody writes.
struct FilledArray {
  std::vector<std::int64_t> values;
};
// By the functions of src/plan. Throws std::invalid_argument for requests and slots out of range.
[[nodiscard]] std::vector<FilledArray> make_metadata(const MetadataProblem& problem,
                                                     const EngineStep& engine);
[[nodiscard]] std::int64_t index_at(const MetadataArray& array, const std::byte* first,
                                    std::int64_t index);
void put_index(const MetadataArray& array, std::byte* first, std::int64_t index,
               std::int64_t value);
// All entries but those that are left alone.
void put_filled(const MetadataArray& array, std::byte* first, const FilledArray& filled);
// As people read it: of a float the number, not the bits; "." where it is left alone.
[[nodiscard]] std::string index_text(const MetadataArray& array, std::int64_t value);

}  // namespace lora_bench
