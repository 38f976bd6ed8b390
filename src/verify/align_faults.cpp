#include <algorithm>

#include "plan/forms.h"
#include "verify/metadata_faults.h"

namespace lora_bench {
namespace {

// The list of one slot that rows have, as it is about to be written.
struct ListOfSlot {
  std::int64_t* pairs;    // [places]
  std::int64_t* experts;  // [places / block]
  std::int64_t places;
  std::int64_t block;
  std::int64_t padding;
  std::int64_t& taken;
};

// Calls visit(list) for every slot that rows have, or for those that none has.
template <typename Visit>
void for_each_list(const Spoiled& to, bool active, Visit visit) {
  const std::int64_t places = to.problem.most_pairs();
  const std::int64_t block = to.problem.block;
  std::vector<std::int64_t>& taken = to.of("padded_pairs");
  for (std::int64_t slot = 0; slot < to.problem.slots; ++slot) {
    std::int64_t& of_slot = taken[static_cast<std::size_t>(slot)];
    if ((of_slot != kLeftAlone) == active) {
      visit(ListOfSlot{to.of("pair_order").data() + slot * places,
                       to.of("expert_of_block").data() + slot * (places / block), places, block,
                       to.problem.pairs(), of_slot});
    }
  }
}

std::int64_t* end_of_pairs(const ListOfSlot& list) {
  return std::find(list.pairs, list.pairs + list.places, list.padding);
}

void lose_last_pair(const Spoiled& to) {
  for_each_list(to, true, [](const ListOfSlot& list) {
    std::int64_t* const end = end_of_pairs(list);
    if (end != list.pairs) {
      end[-1] = list.padding;
    }
  });
}

void list_pair_twice(const Spoiled& to) {
  for_each_list(to, true, [](const ListOfSlot& list) {
    std::int64_t* const end = end_of_pairs(list);
    if (end != list.pairs && end - list.pairs < list.taken) {
      *end = end[-1];
    }
  });
}

// The metadata of a step whose rows chose other experts.
template <typename Change>
void make_for_choices(const Spoiled& to, Change change) {
  EngineStep other = to.engine;
  for (std::size_t pair = 0; pair < other.expert_of_choice.size(); ++pair) {
    std::int32_t& expert = other.expert_of_choice[pair];
    expert = change(static_cast<std::int64_t>(pair), expert);
  }
  to.made = make_metadata(to.problem, other);
}

void lose_later_choices(const Spoiled& to) {
  make_for_choices(to, [&](std::int64_t pair, std::int32_t expert) {
    return pair % to.problem.top_k == 0 ? expert : -1;
  });
}

void take_elsewhere_for_last(const Spoiled& to) {
  make_for_choices(to, [&](std::int64_t, std::int32_t expert) {
    return expert < 0 ? static_cast<std::int32_t>(to.problem.experts) - 1 : expert;
  });
}

template <typename Change>
void make_for_slots(const Spoiled& to, Change change) {
  std::vector<std::int32_t> slots = to.adapters;
  std::transform(slots.begin(), slots.end(), slots.begin(), change);
  to.make_for(slots);
}

void list_by_slot_before(const Spoiled& to) {
  make_for_slots(to, [](std::int32_t slot) { return slot > 0 ? slot - 1 : slot; });
}

void take_none_for_slot_0(const Spoiled& to) {
  make_for_slots(to, [](std::int32_t slot) { return std::max(slot, 0); });
}

// With rows without an adapter, of as many clusters as slots the last one is missing.
void skip_last_of_all(const Spoiled& to) {
  const std::vector<std::int64_t>& ids = to.of("active_ids");
  if (ids.front() == -1 && ids.back() >= 0) {
    const std::int64_t places = to.problem.most_pairs();
    const auto leave = [&](const char* array, std::int64_t each) {
      std::vector<std::int64_t>& values = to.of(array);
      std::fill(values.end() - each, values.end(), kLeftAlone);
    };
    leave("pair_order", places);
    leave("expert_of_block", places / to.problem.block);
    leave("padded_pairs", 1);
  }
}

void name_next_blocks(const Spoiled& to) {
  for_each_list(to, true, [](const ListOfSlot& list) {
    const std::int64_t blocks = list.taken / list.block;
    if (blocks > 1) {
      std::copy(list.experts + 1, list.experts + blocks, list.experts);
    }
  });
}

void pad_with_pair_0(const Spoiled& to) {
  for_each_list(to, true, [](const ListOfSlot& list) {
    std::replace(list.pairs, list.pairs + list.places, list.padding, std::int64_t{0});
  });
}

void count_pairs_alone(const Spoiled& to) {
  for_each_list(to, true, [](const ListOfSlot& list) {
    list.taken = std::count_if(list.pairs, list.pairs + list.places,
                               [&](std::int64_t pair) { return pair != list.padding; });
  });
}

void write_idle_slots(const Spoiled& to) {
  for_each_list(to, false, [](const ListOfSlot& list) {
    std::fill_n(list.pairs, list.places, list.padding);
    std::fill_n(list.experts, list.places / list.block, -1);
    list.taken = 0;
  });
}

void leave_behind(const Spoiled& to) {
  for_each_list(to, true, [](const ListOfSlot& list) {
    std::fill(list.pairs + list.taken, list.pairs + list.places, kLeftAlone);
    std::fill(list.experts + list.taken / list.block, list.experts + list.places / list.block,
              kLeftAlone);
  });
}

void name_expert_0_behind(const Spoiled& to) {
  for_each_list(to, true, [](const ListOfSlot& list) {
    std::fill(list.experts + list.taken / list.block, list.experts + list.places / list.block, 0);
  });
}

void list_rows(const Spoiled& to) {
  for_each_list(to, true, [&](const ListOfSlot& list) {
    std::for_each(list.pairs, list.pairs + list.places, [&](std::int64_t& pair) {
      pair = pair == list.padding ? pair : pair / to.problem.top_k;
    });
  });
}

void list_experts_downward(const Spoiled& to) {
  for_each_list(to, true, [](const ListOfSlot& list) {
    const std::int64_t blocks = list.taken / list.block;
    std::reverse(list.experts, list.experts + blocks);
    for (std::int64_t block = 0; block < blocks / 2; ++block) {
      std::swap_ranges(list.pairs + block * list.block, list.pairs + (block + 1) * list.block,
                       list.pairs + (blocks - 1 - block) * list.block);
    }
  });
}

// The pairs of an expert begin where those of the one before end, in the midst of a block.
void list_without_padding(const Spoiled& to) {
  for_each_list(to, true, [](const ListOfSlot& list) {
    std::int64_t* const end = std::remove(list.pairs, list.pairs + list.taken, list.padding);
    std::fill(end, list.pairs + list.taken, list.padding);
  });
}

void freeze_ids(const Spoiled& to) { to.of("active_ids") = to.first_of("active_ids"); }

void freeze_enabled(const Spoiled& to) { to.of("enabled") = to.first_of("enabled"); }

}  // namespace

std::vector<MetadataFault> faults_of_align() {
  const auto fault = [](std::string_view key, std::string_view meaning, std::string_view named,
                        std::string_view source, void (*spoil)(const Spoiled&)) {
    return MetadataFault{{key, meaning, named, source, Form::kAlign}, spoil};
  };
  return {
      fault("metadata-pair-lost", "the last pair of an expert is not listed", "pair-lost", "design",
            lose_last_pair),
      fault("metadata-later-choices-lost", "the first expert of a row alone is listed", "pair-lost",
            "design", lose_later_choices),
      fault("metadata-pair-twice", "the last pair of an expert stands in the padding again",
            "pair-twice", "design", list_pair_twice),
      fault("metadata-rows-for-pairs", "numbers of rows are listed", "row-for-pair", "design",
            list_rows),
      fault("metadata-pairs-with-slot-before", "pairs are listed with the slot before theirs",
            "pair-of-other-slot", "SGLang #24171", list_by_slot_before),
      fault("metadata-none-in-slot-0", "pairs of rows without an adapter are listed with slot 0",
            "none-listed", "SGLang #24171", take_none_for_slot_0),
      fault("metadata-elsewhere-in-last", "an expert that is elsewhere is taken for the last one",
            "elsewhere-listed", "SGLang #23178", take_elsewhere_for_last),
      fault("metadata-lists-one-short",
            "with every slot in use and rows without an adapter the last slot is left out",
            "slot-skipped", "vLLM #40131", skip_last_of_all),
      fault("metadata-idle-lists-written", "lists of slots that no row has are emptied",
            "idle-slot-written", "design", write_idle_slots),
      fault("metadata-expert-of-next-block", "a block names the expert of the block after it",
            "wrong-expert", "design", name_next_blocks),
      fault("metadata-experts-downward", "experts come in descending order", "experts-unsorted",
            "design", list_experts_downward),
      fault("metadata-experts-unpadded", "the pairs of an expert follow those of the one before",
            "pair-of-other-expert", "design", list_without_padding),
      fault("metadata-padded-with-0", "lists are padded with 0, which is a pair", "wrong-padding",
            "design", pad_with_pair_0),
      fault("metadata-count-unpadded", "pairs are counted before they are padded",
            "count-not-padded", "design", count_pairs_alone),
      fault("metadata-behind-blocks-left", "what is behind the last block is not written",
            "blocks-left", "vLLM #42008", leave_behind),
      fault("metadata-expert-0-behind", "blocks behind the last one name expert 0",
            "unused-block-named", "design", name_expert_0_behind),
      fault("metadata-frozen-ids", "the active slots stay those of the first launch", "step-before",
            "vLLM #34119", freeze_ids),
      fault("metadata-frozen-enabled", "the flags of slots stay those of the first launch",
            "step-before", "design", freeze_enabled)};
}

}  // namespace lora_bench
