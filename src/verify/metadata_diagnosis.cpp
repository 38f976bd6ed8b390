#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "plan/forms.h"
#include "verify/metadata_looked.h"

namespace lora_bench {

namespace {

std::string test_stale_tail(const Looked& looked) {
  return all_wrong(looked,
                   [&](const WrongEntry& entry) {
                     return is_tail(looked, entry) &&
                            looked.evidence.is_unwritten(entry.first, entry.second);
                   })
             ? fmt::format("entries behind the last group, {} first, hold what was there before",
                           looked.named(looked.wrong.front()))
             : "";
}

std::string test_wrong_tail(const Looked& looked) {
  const WrongEntry& first = looked.wrong.front();
  return all_wrong(looked, [&](const WrongEntry& entry) { return is_tail(looked, entry); })
             ? fmt::format("{} is behind the last group and {}", looked.named(first),
                           looked.wrong_text(first))
             : "";
}

// A whole array, or whatever is wrong. Of the order alone it is told which row is lost.
std::string test_unwritten(const Looked& looked) {
  const auto is_poison = [&](const WrongEntry& entry) { return looked.is_poison(entry); };
  for (std::size_t array = 0; array < looked.arrays.size(); ++array) {
    const std::size_t promised = looked.evidence.promised[array].values.size();
    bool none = true;
    std::size_t owned = 0;
    for (std::size_t entry = 0; entry < promised && none; ++entry) {
      const bool left_alone = looked.expected({array, entry}) == kLeftAlone;
      owned += left_alone ? 0 : 1;
      none = left_alone || is_poison({array, entry});
    }
    if (none && owned > 0) {
      return fmt::format("{} was not written", looked.arrays[array].name);
    }
  }
  const auto order = order_of(looked);
  const auto beside_order = [&](const WrongEntry& entry) { return entry.first != order; };
  const auto first = std::find_if(looked.wrong.begin(), looked.wrong.end(), beside_order);
  return first != looked.wrong.end() && all_wrong(looked, is_poison)
             ? fmt::format("{} was not written", looked.named(*first))
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

// A group of an adapter that some row has is not there, and none of another slot in its place.
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
  const std::set<std::int64_t> known(promised.begin(), promised.end());
  for (std::size_t entry = 0; entry < looked.groups_left(*array); ++entry) {
    if (left[entry] >= 0 && !known.contains(left[entry])) {
      return "";
    }
  }
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

std::string test_none_row_grouped(const Looked& looked) {
  const auto found =
      std::find_if(looked.wrong.begin(), looked.wrong.end(),
                   [&](const WrongEntry& entry) { return stands_for_none(looked, entry); });
  return found == looked.wrong.end() ? ""
                                     : fmt::format("{} stands for rows without an adapter and {}",
                                                   looked.named(*found), looked.wrong_text(*found));
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

std::string_view beside(std::int64_t by) { return by > 0 ? "after" : "before"; }

// Every wrong entry is of a slot, and that is the one beside the right one.
std::string test_entries_off_by_one(const Looked& looked) {
  std::int64_t by = 0;
  const bool same = all_wrong(looked, [&](const WrongEntry& entry) {
    const std::int64_t step = step_of_slot(looked, entry);
    const std::int64_t moved = looked.got(entry) - looked.expected(entry);
    by = by == 0 && step != 0 ? moved / step : by;
    return step != 0 && moved == by * step && (by == 1 || by == -1);
  });
  const bool of_none =
      all_wrong(looked, [&](const WrongEntry& entry) { return stands_for_none(looked, entry); });
  return same && !of_none ? fmt::format("{} names the slot {} the right one",
                                        looked.named(looked.wrong.front()), beside(by))
                          : "";
}

// Most rows of adapters are given to the slot beside theirs, and no row to another: then groups,
// order and counts are those of the wrong slots.
std::string test_slot_off_by_one(const Looked& looked) {
  if (const std::string sentence = test_entries_off_by_one(looked); !sentence.empty()) {
    return sentence;
  }
  const std::vector<std::int64_t> given = slots_given(looked);
  std::int64_t by = 0, first = -1, moved = 0, of_adapters = 0;
  for (std::size_t row = 0; row < given.size(); ++row) {
    const std::int64_t adapter = looked.adapters[row];
    const std::int64_t off = given[row] - adapter;
    of_adapters += adapter >= 0 ? 1 : 0;
    if (off == 0) {
      continue;
    }
    by = by == 0 ? off : by;
    if (off != by || (by != 1 && by != -1)) {
      return "";
    }
    moved += adapter >= 0 ? 1 : 0;
    first = first < 0 && adapter >= 0 ? static_cast<std::int64_t>(row) : first;
  }
  return moved > 0 && 2 * moved > of_adapters
             ? fmt::format("row {} is given to the slot {} its own", first, beside(by))
             : "";
}

// The segments hold the rows that they should, but some of them hold more than a chunk.
std::string test_segment_too_long(const Looked& looked) {
  if (looked.problem().form != Form::kChunked) {
    return "";
  }
  const std::size_t array = *looked.array("segment_starts");
  const std::vector<std::int64_t> starts = looked.left(array);
  const bool whole = std::is_sorted(starts.begin(), starts.end()) && starts.front() == 0 &&
                     starts.back() == looked.evidence.promised[array].values.back();
  for (std::size_t segment = 0; whole && segment + 1 < starts.size(); ++segment) {
    const std::int64_t rows = starts[segment + 1] - starts[segment];
    if (rows > looked.problem().chunk) {
      return fmt::format("segment {} has {} rows, more than the chunk of {}", segment, rows,
                         looked.problem().chunk);
    }
  }
  return "";
}

// Not where a segment begins elsewhere and names the slot of the rows that it has.
std::string test_wrong_slot(const Looked& looked) {
  const auto found =
      std::find_if(looked.wrong.begin(), looked.wrong.end(), [&](const WrongEntry& entry) {
        return step_of_slot(looked, entry) != 0 && !looked.is_poison(entry) &&
               !(looked.holds(entry, "adapter_of_segment") && is_slot_of_segment(looked, entry));
      });
  return found == looked.wrong.end()
             ? ""
             : fmt::format("{} holds {} where {} would name its slot", looked.named(*found),
                           looked.got(*found), looked.expected(*found));
}

std::string test_wrong_rank(const Looked& looked) {
  const WrongEntry& first = looked.wrong.front();
  return all_wrong(looked,
                   [&](const WrongEntry& entry) {
                     return looked.holds(entry, "rank") || looked.holds(entry, "scale");
                   })
             ? fmt::format("{} {}", looked.named(first), looked.wrong_text(first))
             : "";
}

std::string test_wrong_count(const Looked& looked) {
  const WrongEntry& first = looked.wrong.front();
  return fmt::format("{} {}", looked.named(first), looked.wrong_text(first));
}

const std::vector<MetadataTest>& metadata_tests() {
  static const std::vector<MetadataTest> kTests{
      {{"stale-tail", "entries behind the last group hold what was there before"}, test_stale_tail},
      {{"wrong-tail", "entries behind the last group hold what the form does not promise there"},
       test_wrong_tail},
      test_of_unwritten(),
      {{"row-twice", "a row is in the order of the rows twice"}, test_row_twice},
      {{"row-lost", "a row is not in the order of the rows"}, test_row_lost},
      test_of_step_before(),
      {{"slot-off-by-one", "rows or groups are given to the slot beside the right one"},
       test_slot_off_by_one},
      {{"segment-too-long", "a segment has more rows than the chunk"}, test_segment_too_long},
      {{"group-lost", "a slot that has rows has no group"}, test_group_lost},
      {{"wrong-group", "a row is in the group of another slot"}, test_wrong_group},
      {{"order-lost", "the rows of a group are not in their order"}, test_order_lost},
      {{"truncated-index", "an index of 64 bits was computed in 32"}, test_truncated_index},
      {{"request-for-slot", "the number of a request stands where that of its slot should"},
       test_request_for_slot},
      {{"none-row-grouped", "rows without an adapter are given to a slot"}, test_none_row_grouped},
      {{"wrong-slot", "an entry does not name the slot of its row"}, test_wrong_slot},
      {{"wrong-rank", "the rank or the scale of a slot is wrong"}, test_wrong_rank},
      test_of_counts()};
  return kTests;
}

}  // namespace

MetadataTest test_of_unwritten() {
  return {{"unwritten", "an array, or an entry of it, was never written"}, test_unwritten};
}

MetadataTest test_of_step_before() {
  return {{"step-before", "an entry is right for a step that was made in the same arrays before"},
          test_state_left};
}

MetadataTest test_of_counts() {
  return {{"wrong-count", "a number of rows, groups or segments, or a flag, is wrong"},
          test_wrong_count};
}

const std::vector<HypothesisDoc>& metadata_hypotheses() {
  static const std::vector<HypothesisDoc> kDocs = [] {
    std::vector<HypothesisDoc> docs;
    for (const std::vector<MetadataTest>* tests : {&metadata_tests(), &tests_of_align()}) {
      for (const MetadataTest& entry : *tests) {
        const bool known = std::any_of(docs.begin(), docs.end(), [&](const HypothesisDoc& doc) {
          return doc.key == entry.doc.key;
        });
        if (!known) {
          docs.push_back(entry.doc);
        }
      }
    }
    return docs;
  }();
  return kDocs;
}

Hypothesis diagnose_metadata(const MetadataEvidence& evidence) {
  const Looked looked = looked_at(evidence);
  const bool of_pairs = looked.problem().form == Form::kAlign;
  for (const MetadataTest& entry : of_pairs ? tests_of_align() : metadata_tests()) {
    const std::string sentence = looked.wrong.empty() ? "" : entry.test(looked);
    if (!sentence.empty()) {
      return {std::string(entry.doc.key), sentence};
    }
  }
  return {};
}

}  // namespace lora_bench
