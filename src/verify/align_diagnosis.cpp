#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "plan/forms.h"
#include "verify/metadata_looked.h"

namespace lora_bench {
namespace {

// The outputs of form align, in their order.
enum AlignOutput : std::size_t { kPairOrder, kExpertOfBlock, kPaddedPairs, kActiveIds, kEnabled };

// What a place of a list, or a block of it, belongs to.
struct InList {
  std::int64_t slot, place;
};

InList place_of(const Looked& looked, const WrongEntry& entry) {
  const std::int64_t blocks = looked.problem().most_pairs() / looked.problem().block;
  const std::int64_t each = entry.first == kPairOrder       ? looked.problem().most_pairs()
                            : entry.first == kExpertOfBlock ? blocks
                                                            : 1;
  const auto at = static_cast<std::int64_t>(entry.second);
  return {at / each, at % each};
}

bool is_pair(const Looked& looked, std::int64_t value) {
  return value >= 0 && value < looked.problem().pairs();
}

std::int64_t slot_of_pair(const Looked& looked, std::int64_t pair) {
  return looked.adapters[static_cast<std::size_t>(pair / looked.problem().top_k)];
}

std::int64_t expert_of_pair(const Looked& looked, std::int64_t pair) {
  return looked.evidence.step.engine.expert_of_choice[static_cast<std::size_t>(pair)];
}

std::string pair_text(const Looked& looked, std::int64_t pair) {
  return fmt::format("pair {} (row {}, choice {})", pair, pair / looked.problem().top_k,
                     pair % looked.problem().top_k);
}

// Whether a place or a block is behind the blocks that the pairs of its slot take.
bool is_behind(const Looked& looked, const WrongEntry& entry) {
  if (entry.first > kExpertOfBlock || looked.expected(entry) == kLeftAlone) {
    return false;
  }
  const InList of = place_of(looked, entry);
  const std::int64_t taken =
      looked.evidence.promised[kPaddedPairs].values[static_cast<std::size_t>(of.slot)];
  return of.place >= (entry.first == kPairOrder ? taken : taken / looked.problem().block);
}

// The first wrong place of a list, written by the builder, that holds a pair of which that is true.
template <typename Holds>
std::string told_of_pair(const Looked& looked, Holds holds, std::string_view what) {
  for (const WrongEntry& entry : looked.wrong) {
    const std::int64_t pair = looked.got(entry);
    if (entry.first == kPairOrder && is_pair(looked, pair) &&
        !looked.evidence.is_unwritten(entry.first, entry.second) && holds(entry, pair)) {
      return fmt::format("{} {} and is in the list of slot {}", pair_text(looked, pair), what,
                         place_of(looked, entry).slot);
    }
  }
  return "";
}

std::string test_behind_left(const Looked& looked) {
  return all_wrong(looked,
                   [&](const WrongEntry& entry) {
                     return is_behind(looked, entry) &&
                            looked.evidence.is_unwritten(entry.first, entry.second);
                   })
             ? fmt::format("{}, behind the last block of slot {}, holds what was there before",
                           looked.named(looked.wrong.front()),
                           place_of(looked, looked.wrong.front()).slot)
             : "";
}

// All places and blocks of a slot that rows have are as before, and those of another are not.
std::string test_slot_skipped(const Looked& looked) {
  const std::vector<std::int64_t>& taken = looked.evidence.promised[kPaddedPairs].values;
  std::int64_t skipped = -1, made = 0;
  for (std::size_t slot = 0; slot < taken.size(); ++slot) {
    bool untouched = taken[slot] != kLeftAlone;
    for (const AlignOutput array : {kPairOrder, kExpertOfBlock, kPaddedPairs}) {
      const std::size_t each = looked.evidence.promised[array].values.size() / taken.size();
      for (std::size_t at = slot * each; at < (slot + 1) * each && untouched; ++at) {
        untouched = looked.evidence.is_unwritten(array, at);
      }
    }
    made += taken[slot] != kLeftAlone && !untouched ? 1 : 0;
    const bool wrong = untouched && looked.evidence.is_wrong(kPaddedPairs, slot);
    skipped = skipped < 0 && wrong ? static_cast<std::int64_t>(slot) : skipped;
  }
  return skipped >= 0 && made > 0
             ? fmt::format("slot {} has rows, and nothing of its lists was written", skipped)
             : "";
}

std::string test_row_for_pair(const Looked& looked) {
  const std::int64_t top_k = looked.problem().top_k;
  return top_k > 1 &&
                 all_wrong(looked,
                           [&](const WrongEntry& entry) {
                             return entry.first == kPairOrder &&
                                    is_pair(looked, looked.expected(entry)) &&
                                    looked.got(entry) < looked.problem().tokens;
                           }) &&
                 std::any_of(looked.wrong.begin(), looked.wrong.end(),
                             [&](const WrongEntry& entry) {
                               return looked.got(entry) == looked.expected(entry) / top_k;
                             })
             ? "numbers of rows are listed, not of pairs"
             : "";
}

// More than one place, or a number that is none of a pair: else it is a pair too many.
std::string test_wrong_padding(const Looked& looked) {
  const std::int64_t first = looked.got(looked.wrong.front());
  const bool same = all_wrong(looked, [&](const WrongEntry& entry) {
    return entry.first == kPairOrder && looked.expected(entry) == looked.problem().pairs() &&
           looked.got(entry) == first;
  });
  const bool written =
      !looked.evidence.is_unwritten(looked.wrong.front().first, looked.wrong.front().second);
  return same && written && (looked.wrong.size() > 1 || !is_pair(looked, first))
             ? fmt::format("lists are padded with {}, not with {}, the number of pairs", first,
                           looked.problem().pairs())
             : "";
}

std::string test_none_listed(const Looked& looked) {
  return told_of_pair(
      looked, [&](const WrongEntry&, std::int64_t pair) { return slot_of_pair(looked, pair) < 0; },
      "has no adapter");
}

std::string test_elsewhere_listed(const Looked& looked) {
  return told_of_pair(
      looked,
      [&](const WrongEntry&, std::int64_t pair) { return expert_of_pair(looked, pair) < 0; },
      "has its expert elsewhere");
}

std::string test_other_slot(const Looked& looked) {
  return told_of_pair(
      looked,
      [&](const WrongEntry& entry, std::int64_t pair) {
        return slot_of_pair(looked, pair) != place_of(looked, entry).slot;
      },
      "is of another slot");
}

std::string test_idle_written(const Looked& looked) {
  const auto found =
      std::find_if(looked.wrong.begin(), looked.wrong.end(),
                   [&](const WrongEntry& entry) { return looked.expected(entry) == kLeftAlone; });
  return found == looked.wrong.end()
             ? ""
             : fmt::format("no row has slot {}, and {} was written, with {}",
                           place_of(looked, *found).slot, looked.named(*found), looked.got(*found));
}

// How often each pair is in the lists of slots that rows have.
std::vector<std::int64_t> times_listed(const Looked& looked) {
  const std::vector<std::int64_t>& promised = looked.evidence.promised[kPairOrder].values;
  std::vector<std::int64_t> times(static_cast<std::size_t>(looked.problem().pairs()));
  for (std::size_t at = 0; at < promised.size(); ++at) {
    const std::int64_t got = looked.evidence.got_at(kPairOrder, at);
    if (promised[at] != kLeftAlone && is_pair(looked, got)) {
      ++times[static_cast<std::size_t>(got)];
    }
  }
  return times;
}

std::string test_pair_twice(const Looked& looked) {
  const std::vector<std::int64_t> times = times_listed(looked);
  const auto found = std::find_if(times.begin(), times.end(), [](auto count) { return count > 1; });
  return found == times.end() ? ""
                              : fmt::format("{} is listed {} times",
                                            pair_text(looked, found - times.begin()), *found);
}

std::string test_pair_lost(const Looked& looked) {
  const std::vector<std::int64_t> times = times_listed(looked);
  for (std::int64_t pair = 0; pair < std::ssize(times); ++pair) {
    if (times[static_cast<std::size_t>(pair)] == 0 && slot_of_pair(looked, pair) >= 0 &&
        expert_of_pair(looked, pair) >= 0) {
      return fmt::format("{} of slot {} is not listed", pair_text(looked, pair),
                         slot_of_pair(looked, pair));
    }
  }
  return "";
}

// Every block holds pairs of the expert that it names alone.
bool names_its_pairs(const Looked& looked) {
  const auto block = static_cast<std::size_t>(looked.problem().block);
  const std::vector<std::int64_t>& promised = looked.evidence.promised[kPairOrder].values;
  for (std::size_t at = 0; at < promised.size(); ++at) {
    const std::int64_t pair = looked.evidence.got_at(kPairOrder, at);
    if (promised[at] != kLeftAlone && is_pair(looked, pair) &&
        expert_of_pair(looked, pair) != looked.evidence.got_at(kExpertOfBlock, at / block)) {
      return false;
    }
  }
  return true;
}

std::string test_experts_unsorted(const Looked& looked) {
  const auto found =
      std::find_if(looked.wrong.begin(), looked.wrong.end(),
                   [](const WrongEntry& entry) { return entry.first == kExpertOfBlock; });
  return found != looked.wrong.end() && !is_behind(looked, *found) && names_its_pairs(looked)
             ? fmt::format(
                   "blocks hold the pairs of the experts that they name, but {} is {} "
                   "where {} comes in ascending order",
                   looked.named(*found), looked.got(*found), looked.expected(*found))
             : "";
}

std::string test_other_expert(const Looked& looked) {
  const auto block = static_cast<std::size_t>(looked.problem().block);
  for (const WrongEntry& entry : looked.wrong) {
    const std::int64_t pair = looked.got(entry);
    if (entry.first != kPairOrder || !is_pair(looked, pair)) {
      continue;
    }
    const std::int64_t expert =
        looked.evidence.promised[kExpertOfBlock].values[entry.second / block];
    if (expert_of_pair(looked, pair) != expert) {
      return fmt::format("{} has expert {} and stands at {}, in a block of {}",
                         pair_text(looked, pair), expert_of_pair(looked, pair), looked.named(entry),
                         expert < 0 ? "none" : fmt::format("expert {}", expert));
    }
  }
  return "";
}

std::string test_block_named_behind(const Looked& looked) {
  const WrongEntry& first = looked.wrong.front();
  return all_wrong(looked,
                   [&](const WrongEntry& entry) {
                     return entry.first == kExpertOfBlock && is_behind(looked, entry);
                   })
             ? fmt::format("{} is behind the last block of slot {} and names expert {}, not -1",
                           looked.named(first), place_of(looked, first).slot, looked.got(first))
             : "";
}

std::string test_wrong_expert(const Looked& looked) {
  const auto of_block = [](const WrongEntry& entry) { return entry.first == kExpertOfBlock; };
  const auto found = std::find_if(looked.wrong.begin(), looked.wrong.end(), of_block);
  if (found == looked.wrong.end()) {
    return "";
  }
  const std::vector<std::int64_t>& promised = looked.evidence.promised[kExpertOfBlock].values;
  const auto as_beside = [&](std::ptrdiff_t by) {
    return all_wrong(looked, [&](const WrongEntry& entry) {
      const auto at = static_cast<std::ptrdiff_t>(entry.second) + by;
      return of_block(entry) && at >= 0 && at < std::ssize(promised) &&
             looked.got(entry) == promised[static_cast<std::size_t>(at)];
    });
  };
  const std::string sentence =
      fmt::format("{} {}", looked.named(*found), looked.wrong_text(*found));
  return as_beside(1)    ? sentence + ": blocks name the expert of the block after them"
         : as_beside(-1) ? sentence + ": blocks name the expert of the block before them"
                         : sentence;
}

// The pairs of a slot, not the places that whole blocks of them take.
std::string test_count_unpadded(const Looked& looked) {
  std::vector<std::int64_t> pairs(static_cast<std::size_t>(looked.problem().slots));
  for (std::int64_t pair = 0; pair < looked.problem().pairs(); ++pair) {
    const std::int64_t slot = slot_of_pair(looked, pair);
    if (slot >= 0 && expert_of_pair(looked, pair) >= 0) {
      ++pairs[static_cast<std::size_t>(slot)];
    }
  }
  const WrongEntry& first = looked.wrong.front();
  return all_wrong(looked,
                   [&](const WrongEntry& entry) {
                     return entry.first == kPaddedPairs && looked.got(entry) == pairs[entry.second];
                   })
             ? fmt::format("{} is {}, the pairs of slot {}, not {}, the places of their blocks",
                           looked.named(first), looked.got(first), first.second,
                           looked.expected(first))
             : "";
}

}  // namespace

const std::vector<MetadataTest>& tests_of_align() {
  static const std::vector<MetadataTest> kTests{
      {{"blocks-left", "entries behind the last block of a slot hold what was there before"},
       test_behind_left},
      {{"row-for-pair", "numbers of rows are listed where those of pairs should be"},
       test_row_for_pair},
      {{"wrong-padding", "lists are padded with another number than that of all pairs"},
       test_wrong_padding},
      {{"none-listed", "a pair whose row has no adapter is listed"}, test_none_listed},
      {{"elsewhere-listed", "a pair whose expert is elsewhere is listed"}, test_elsewhere_listed},
      {{"pair-of-other-slot", "a pair is in the list of another slot"}, test_other_slot},
      {{"slot-skipped", "a slot has rows and nothing of its lists was written"}, test_slot_skipped},
      test_of_unwritten(),
      {{"idle-slot-written", "something was written into the lists of a slot that no row has"},
       test_idle_written},
      {{"pair-twice", "a pair is listed more than once"}, test_pair_twice},
      {{"pair-lost", "a pair of a slot and an expert is not listed"}, test_pair_lost},
      test_of_step_before(),
      {{"experts-unsorted", "experts of a slot are not in ascending order"}, test_experts_unsorted},
      {{"pair-of-other-expert", "a pair stands in a block of another expert"}, test_other_expert},
      {{"unused-block-named", "a block behind the last one of a slot names an expert"},
       test_block_named_behind},
      {{"wrong-expert", "a block does not name the expert of its pairs"}, test_wrong_expert},
      {{"count-not-padded", "the pairs of a slot are counted, not the places of their blocks"},
       test_count_unpadded},
      test_of_counts()};
  return kTests;
}

}  // namespace lora_bench
