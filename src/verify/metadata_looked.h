#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "verify/metadata_proof.h"

namespace lora_bench {

using WrongEntry = std::pair<std::size_t, std::size_t>;  // array, entry

// The evidence of op metadata with what several tests of a diagnosis ask of it.
struct Looked {
  const MetadataEvidence& evidence;
  std::vector<MetadataArray> arrays;
  std::vector<WrongEntry> wrong;
  std::vector<std::int32_t> adapters;  // of each row

  [[nodiscard]] const MetadataProblem& problem() const { return evidence.step.problem; }
  [[nodiscard]] std::optional<std::size_t> array(std::string_view name) const;
  [[nodiscard]] bool holds(const WrongEntry& entry, std::string_view name) const {
    return arrays[entry.first].name == name;
  }
  [[nodiscard]] std::int64_t got(const WrongEntry& entry) const {
    return evidence.got_at(entry.first, entry.second);
  }
  [[nodiscard]] std::int64_t expected(const WrongEntry& entry) const {
    return evidence.promised[entry.first].values[entry.second];
  }
  [[nodiscard]] bool is_poison(const WrongEntry& entry) const {
    return evidence.is_poison(entry.first, entry.second);
  }
  [[nodiscard]] std::string named(const WrongEntry& entry) const;  // "counts[3]"
  // "holds 3, not 4", or that it was not written.
  [[nodiscard]] std::string wrong_text(const WrongEntry& entry) const;
  // The promised entries of an array as they were left.
  [[nodiscard]] std::vector<std::int64_t> left(std::size_t array) const;
  // Of an array with an entry for each group or segment those that the builder says there are, no
  // more than are promised.
  [[nodiscard]] std::size_t groups_left(std::size_t array) const;
};
[[nodiscard]] Looked looked_at(const MetadataEvidence& evidence);

// A question about what is wrong: the sentence that says so, or "".
struct MetadataTest {
  HypothesisDoc doc;
  std::string (*test)(const Looked&);
};
// Those that every form is asked.
[[nodiscard]] MetadataTest test_of_unwritten();
[[nodiscard]] MetadataTest test_of_step_before();
[[nodiscard]] MetadataTest test_of_counts();
// Those that lists of pairs are asked, the most specific first, with the above between them.
[[nodiscard]] const std::vector<MetadataTest>& tests_of_align();

[[nodiscard]] bool all_wrong(const Looked& looked,
                             const std::function<bool(const WrongEntry&)>& holds);
// The array that holds every row once.
[[nodiscard]] std::optional<std::size_t> order_of(const Looked& looked);
// Of arrays of slots, with an entry for each row or group: by how much one slot more moves an
// entry. 0 of others.
[[nodiscard]] std::int64_t step_of_slot(const Looked& looked, const WrongEntry& entry);
// The slot that an entry of a row names: of a row without an adapter what the form says.
[[nodiscard]] std::int64_t slot_of_row(const Looked& looked, const WrongEntry& entry);
// An entry behind the groups that there are.
[[nodiscard]] bool is_tail(const Looked& looked, const WrongEntry& entry);
// An entry of rows without an adapter, where a slot is expected to say so.
[[nodiscard]] bool stands_for_none(const Looked& looked, const WrongEntry& entry);
// Whether a segment names the slot of the row that it begins with, wherever that is.
[[nodiscard]] bool is_slot_of_segment(const Looked& looked, const WrongEntry& segment);
// The slot that each row is given, -1 = none: of the forms kernel and chunked, and empty where what
// was left gives rows to no slot that could be read.
[[nodiscard]] std::vector<std::int64_t> slots_given(const Looked& looked);

}  // namespace lora_bench
