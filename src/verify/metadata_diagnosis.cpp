#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

#include "verify/metadata_proof.h"

namespace lora_bench {

std::int64_t MetadataEvidence::got_at(std::size_t array, std::size_t entry) const {
  return index_at(outputs_of(step.problem)[array], got[array].data(),
                  static_cast<std::int64_t>(entry));
}

bool MetadataEvidence::is_wrong(std::size_t array, std::size_t entry) const {
  return got_at(array, entry) != promised[array].values[entry];
}

bool MetadataEvidence::is_unwritten(std::size_t array, std::size_t entry) const {
  return got_at(array, entry) == index_at(outputs_of(step.problem)[array], before[array].data(),
                                          static_cast<std::int64_t>(entry));
}

namespace {

using WrongEntry = std::pair<std::size_t, std::size_t>;  // array, entry

// The evidence with what several tests ask of it.
struct Looked {
  const MetadataEvidence& evidence;
  std::vector<MetadataArray> arrays;
  std::vector<WrongEntry> wrong;
  std::vector<std::int32_t> adapters;  // of each row

  [[nodiscard]] const MetadataProblem& problem() const { return evidence.step.problem; }
  [[nodiscard]] std::optional<std::size_t> array(std::string_view name) const {
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      if (arrays[i].name == name) {
        return i;
      }
    }
    return std::nullopt;
  }
  [[nodiscard]] bool holds(const WrongEntry& entry, std::string_view name) const {
    return arrays[entry.first].name == name;
  }
  [[nodiscard]] std::int64_t got(const WrongEntry& entry) const {
    return evidence.got_at(entry.first, entry.second);
  }
  [[nodiscard]] std::int64_t expected(const WrongEntry& entry) const {
    return evidence.promised[entry.first].values[entry.second];
  }
  [[nodiscard]] std::string named(const WrongEntry& entry) const {
    return fmt::format("{}[{}]", arrays[entry.first].name, entry.second);
  }
  // The promised entries of an array as they were left.
  [[nodiscard]] std::vector<std::int64_t> left(std::size_t array) const {
    std::vector<std::int64_t> values;
    for (std::size_t entry = 0; entry < evidence.promised[array].values.size(); ++entry) {
      values.push_back(evidence.got_at(array, entry));
    }
    return values;
  }
};

// Arrays that hold every row once.
std::optional<std::size_t> order_of(const Looked& looked) {
  const auto order = looked.array("token_order");
  const auto found = order ? order : looked.array("permutation");
  return found && !looked.evidence.promised[*found].values.empty() ? found : std::nullopt;
}

// Arrays of slots, one for each row or group, and by how much one slot more moves an entry.
std::int64_t step_of_slot(const Looked& looked, const WrongEntry& entry) {
  const MetadataProblem& problem = looked.problem();
  const std::string_view name = looked.arrays[entry.first].name;
  if (name == "padded") {
    return problem.samples;
  }
  if (name == "extra") {
    return problem.extra_vocabulary;
  }
  if (name == "table") {
    return problem.vocabulary + problem.extra_vocabulary;
  }
  const bool slots = name == "adapter_of_token" || name == "adapters" || name == "active_ids" ||
                     name == "adapter_of_segment";
  return slots ? 1 : 0;
}

// The slot that an entry of a row names: of a row without an adapter what the form says.
std::int64_t slot_of_row(const Looked& looked, const WrongEntry& entry) {
  const std::int32_t adapter = looked.adapters[entry.second];
  if (adapter >= 0) {
    return adapter;
  }
  const bool first = looked.holds(entry, "extra") || looked.holds(entry, "table");
  return looked.holds(entry, "padded") ? looked.problem().slots - 1 : (first ? 0 : -1);
}

// Entries behind the groups that there are.
bool is_tail(const Looked& looked, const WrongEntry& entry) {
  const auto count = looked.array(looked.problem().form == Form::kKernel ? "active" : "segments");
  if (!count) {
    return false;
  }
  const std::int64_t groups = looked.evidence.promised[*count].values.front();
  const auto at = static_cast<std::int64_t>(entry.second);
  return ((looked.holds(entry, "active_ids") || looked.holds(entry, "counts")) && at >= groups) ||
         (looked.holds(entry, "starts") && at > groups) ||
         (looked.holds(entry, "segment_starts") && at > groups);
}

bool all_wrong(const Looked& looked, const std::function<bool(const WrongEntry&)>& holds) {
  return std::all_of(looked.wrong.begin(), looked.wrong.end(), holds);
}

std::string test_stale_tail(const Looked& looked) {
  return all_wrong(looked, [&](const WrongEntry& entry) { return is_tail(looked, entry); })
             ? fmt::format("entries behind the last group, {} first, hold what was there before",
                           looked.named(looked.wrong.front()))
             : "";
}

std::string test_state_left(const Looked& looked) {
  for (const std::vector<FilledArray>& earlier : looked.evidence.earlier) {
    const bool same = all_wrong(looked, [&](const WrongEntry& entry) {
      const std::vector<std::int64_t>& values = earlier[entry.first].values;
      const bool as_then =
          entry.second < values.size() && values[entry.second] == looked.got(entry);
      return as_then || looked.evidence.is_unwritten(entry.first, entry.second);
    });
    if (same) {
      return fmt::format("{} and every other wrong entry is as a step before had it",
                         looked.named(looked.wrong.front()));
    }
  }
  return "";
}

std::string test_row_twice(const Looked& looked) {
  const auto order = order_of(looked);
  if (!order) {
    return "";
  }
  std::set<std::int64_t> seen;
  for (const std::int64_t row : looked.left(*order)) {
    if (!seen.insert(row).second) {
      return fmt::format("row {} is twice in {}", row, looked.arrays[*order].name);
    }
  }
  return "";
}

std::string test_row_lost(const Looked& looked) {
  const auto order = order_of(looked);
  if (!order) {
    return "";
  }
  const std::vector<std::int64_t> left = looked.left(*order);
  const std::set<std::int64_t> seen(left.begin(), left.end());
  for (std::int64_t row = 0; row < std::ssize(left); ++row) {
    if (!seen.contains(row)) {
      return fmt::format("row {} is not in {}", row, looked.arrays[*order].name);
    }
  }
  return "";
}

// A group of an adapter that some row has is not there.
std::string test_group_lost(const Looked& looked) {
  const auto ids = looked.array("active_ids");
  const auto segments = looked.array("adapter_of_segment");
  const std::optional<std::size_t> array = ids ? ids : segments;
  if (!array) {
    return "";
  }
  const std::vector<std::int64_t>& promised = looked.evidence.promised[*array].values;
  const std::vector<std::int64_t> left = looked.left(*array);
  const std::set<std::int64_t> seen(left.begin(), left.end());
  for (const std::int64_t id : promised) {
    if (id >= 0 && id < looked.problem().slots && !seen.contains(id)) {
      return fmt::format("slot {} has rows and is not in {}", id, looked.arrays[*array].name);
    }
  }
  return "";
}

// The order holds every row once, but not where its group is.
std::string test_wrong_group(const Looked& looked) {
  const auto order = order_of(looked);
  if (!order) {
    return "";
  }
  for (const WrongEntry& entry : looked.wrong) {
    const auto adapter_at = [&](std::int64_t row) {
      return looked.adapters[static_cast<std::size_t>(row)];
    };
    if (entry.first == *order &&
        adapter_at(looked.got(entry)) != adapter_at(looked.expected(entry))) {
      return fmt::format("row {} of slot {} is in the group of slot {}", looked.got(entry),
                         adapter_at(looked.got(entry)), adapter_at(looked.expected(entry)));
    }
  }
  return "";
}

std::string test_order_lost(const Looked& looked) {
  const auto order = order_of(looked);
  return order && all_wrong(looked, [&](const WrongEntry& entry) { return entry.first == *order; })
             ? "the rows of a group are not in their order"
             : "";
}

// Of rows without an adapter, where a slot is expected to say so.
std::string test_none_row_grouped(const Looked& looked) {
  const auto is_none = [&](const WrongEntry& entry) {
    const bool of_rows =
        looked.holds(entry, "adapter_of_token") || looked.holds(entry, "padded") ||
        looked.holds(entry, "extra") || looked.holds(entry, "table") ||
        (looked.holds(entry, "adapters") && looked.problem().form == Form::kSampler);
    const bool none = of_rows && looked.adapters[entry.second] < 0;
    const bool group = (looked.holds(entry, "active_ids") || looked.holds(entry, "adapters")) &&
                       looked.expected(entry) == -1 && !is_tail(looked, entry);
    const bool segment = looked.holds(entry, "adapter_of_segment") &&
                         looked.expected(entry) == looked.problem().slots;
    return none || group || segment;
  };
  const auto found = std::find_if(looked.wrong.begin(), looked.wrong.end(), is_none);
  return found == looked.wrong.end()
             ? ""
             : fmt::format("{} stands for rows without an adapter and holds {}, not {}",
                           looked.named(*found), looked.got(*found), looked.expected(*found));
}

std::string test_request_for_slot(const Looked& looked) {
  const EngineStep& engine = looked.evidence.step.engine;
  const bool samples = looked.problem().form == Form::kSampler;
  const std::vector<std::int32_t>& rows =
      samples ? engine.request_of_sample : engine.request_of_token;
  return all_wrong(looked,
                   [&](const WrongEntry& entry) {
                     const bool of_rows = entry.second < rows.size();
                     const std::int64_t request = of_rows ? rows[entry.second] : -1;
                     const std::int64_t step = step_of_slot(looked, entry);
                     return request >= 0 && step != 0 &&
                            looked.got(entry) - looked.expected(entry) ==
                                (request - slot_of_row(looked, entry)) * step;
                   })
             ? "the number of the request stands where that of its slot should"
             : "";
}

std::string test_truncated_index(const Looked& looked) {
  return all_wrong(looked,
                   [&](const WrongEntry& entry) {
                     return looked.got(entry) == static_cast<std::int32_t>(looked.expected(entry));
                   })
             ? "an index of 64 bits was computed in 32"
             : "";
}

std::string test_slot_off_by_one(const Looked& looked) {
  std::int64_t by = 0;
  const bool same = all_wrong(looked, [&](const WrongEntry& entry) {
    const std::int64_t step = step_of_slot(looked, entry);
    const std::int64_t moved = looked.got(entry) - looked.expected(entry);
    by = by == 0 && step != 0 ? moved / step : by;
    return step != 0 && moved == by * step && (by == 1 || by == -1);
  });
  return same ? fmt::format("{} names the slot {} the right one",
                            looked.named(looked.wrong.front()), by > 0 ? "after" : "before")
              : "";
}

std::string test_wrong_slot(const Looked& looked) {
  const auto found =
      std::find_if(looked.wrong.begin(), looked.wrong.end(),
                   [&](const WrongEntry& entry) { return step_of_slot(looked, entry) != 0; });
  return found == looked.wrong.end()
             ? ""
             : fmt::format("{} holds {} where {} would name its slot", looked.named(*found),
                           looked.got(*found), looked.expected(*found));
}

std::string test_wrong_count(const Looked& looked) {
  return fmt::format("{} holds {} instead of {}", looked.named(looked.wrong.front()),
                     looked.got(looked.wrong.front()), looked.expected(looked.wrong.front()));
}

struct MetadataTest {
  HypothesisDoc doc;
  std::string (*test)(const Looked&);
};

const std::vector<MetadataTest>& metadata_tests() {
  static const std::vector<MetadataTest> kTests{
      {{"stale-tail", "entries behind the last group hold what was there before"}, test_stale_tail},
      {{"row-twice", "a row is in the order of the rows twice"}, test_row_twice},
      {{"row-lost", "a row is not in the order of the rows"}, test_row_lost},
      {{"step-before", "an entry is right for a step that was made in the same arrays before"},
       test_state_left},
      {{"group-lost", "a slot that has rows has no group"}, test_group_lost},
      {{"wrong-group", "a row is in the group of another slot"}, test_wrong_group},
      {{"order-lost", "the rows of a group are not in their order"}, test_order_lost},
      {{"truncated-index", "an index of 64 bits was computed in 32"}, test_truncated_index},
      {{"request-for-slot", "the number of a request stands where that of its slot should"},
       test_request_for_slot},
      {{"none-row-grouped", "rows without an adapter are given to a slot"}, test_none_row_grouped},
      {{"slot-off-by-one", "every wrong entry names the slot beside the right one"},
       test_slot_off_by_one},
      {{"wrong-slot", "an entry does not name the slot of its row"}, test_wrong_slot},
      {{"wrong-count", "a number of rows, groups or segments, or a flag, is wrong"},
       test_wrong_count}};
  return kTests;
}

}  // namespace

const std::vector<HypothesisDoc>& metadata_hypotheses() {
  static const std::vector<HypothesisDoc> kDocs = [] {
    std::vector<HypothesisDoc> docs;
    for (const MetadataTest& entry : metadata_tests()) {
      docs.push_back(entry.doc);
    }
    return docs;
  }();
  return kDocs;
}

Hypothesis diagnose_metadata(const MetadataEvidence& evidence) {
  const MetadataProblem& problem = evidence.step.problem;
  const EngineStep& engine = evidence.step.engine;
  Looked looked{evidence,
                outputs_of(problem),
                {},
                engine.adapters_of(problem.form == Form::kSampler ? engine.request_of_sample
                                                                  : engine.request_of_token)};
  for (std::size_t array = 0; array < looked.arrays.size(); ++array) {
    for (std::size_t entry = 0; entry < evidence.promised[array].values.size(); ++entry) {
      if (evidence.is_wrong(array, entry)) {
        looked.wrong.emplace_back(array, entry);
      }
    }
  }
  for (const MetadataTest& entry : metadata_tests()) {
    const std::string sentence = looked.wrong.empty() ? "" : entry.test(looked);
    if (!sentence.empty()) {
      return {std::string(entry.doc.key), sentence};
    }
  }
  return {};
}

}  // namespace lora_bench
