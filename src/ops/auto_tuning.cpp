#include "ops/auto_tuning.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <stdexcept>
#include <utility>
#include <variant>

#include "core/units.h"

namespace lora_bench {
namespace {

using Member = std::variant<std::optional<AutoFamily> AutoKnobs::*, std::int64_t AutoKnobs::*,
                            std::string AutoKnobs::*>;

struct KnobRow {
  std::string name;
  Member member;
  std::optional<AutoFamily> family;  // of which alone it is
  std::optional<Op> half;            // the same
  std::vector<std::string> values;   // that are compiled, and that a search tries
  std::string allowed, meaning;      // for people
  std::int64_t most = 0;             // if said, a number may be any up to this
  bool tried_last = false;           // of its family; else a search goes down the table
};

std::string text_of(std::optional<AutoFamily> family) {
  return family ? std::string(name(*family)) : "";
}
std::string text_of(std::int64_t number) { return number == 0 ? "" : std::to_string(number); }
std::string text_of(std::string_view word) { return std::string(word); }
std::string text_of(const kernels::PanelShrinkTile& tile) { return tile_name(tile); }
std::string text_of(const kernels::PanelExpandTile& tile) { return tile_name(tile); }

void read(std::optional<AutoFamily>& family, const std::string& text) {
  family = named<AutoFamily>(text);
}
void read(std::int64_t& number, const std::string& text) { number = integer_in(text).value_or(0); }
void read(std::string& word, const std::string& text) { word = text; }

template <typename Values>
std::vector<std::string> texts_of(const Values& values) {
  std::vector<std::string> texts;
  for (const auto& value : values) {
    texts.push_back(text_of(value));
  }
  return texts;
}

// The one table of what a tuning can say, in the order in which it does. What launches reads the
// members in auto_choice.cpp.
const std::vector<KnobRow>& rows() {
  using enum AutoFamily;
  using Numbers = std::initializer_list<std::int64_t>;
  constexpr auto kAll = std::nullopt;
  constexpr auto kBoth = std::nullopt;
  static const std::vector<KnobRow> kRows{
      {"family", &AutoKnobs::family, kAll, kBoth, texts_of(EnumNames<AutoFamily>::kNames), "",
       "kernel family that backend `auto` launches; other backends ignore `tuning`"},
      {"cluster", &AutoKnobs::cluster, kClustered, kBoth,
       texts_of(Numbers{1, 2, 3, 4, 5, 6, 7, 8, 16}), "1 to 8 or 16",
       "family clustered: blocks of a cluster"},
      {"groups", &AutoKnobs::groups, kClustered, kBoth, texts_of(Numbers{1, 2, 3, 4, 5, 6, 7, 8}),
       "1 to 8", "family clustered: clusters that share the columns of a row tile"},
      {"warps", &AutoKnobs::warps, kClustered, kBoth, texts_of(Numbers{2, 3, 4, 6, 8, 12, 16}),
       "2, 3, 4, 6, 8, 12 or 16", "family clustered: warps of a block"},
      {"slots", &AutoKnobs::slots, kClustered, kBoth, texts_of(Numbers{1, 2, 3, 4}), "1 to 4",
       "family clustered: slots of the ring of a warp"},
      {"blocks", &AutoKnobs::blocks, kClustered, kBoth, texts_of(Numbers{1, 2}), "1 or 2",
       "family clustered: blocks that share the memory of a multiprocessor"},
      {"shrink_tile", &AutoKnobs::shrink_tile, kPanel, Op::kShrink,
       texts_of(kernels::kPanelShrinkTiles),
       "ROWSxLANES, some with -joined or -grouped, as `plan --explain` says them",
       "family panel: tile of shrink; joined: a cluster adds its chains; grouped: wgmma"},
      {"split", &AutoKnobs::split, kPanel, Op::kShrink, texts_of(Numbers{1, 2, 4, 8}),
       "1, 2, 4 or 8", "family panel: blocks that share the chains of a tile of shrink"},
      {"parts", &AutoKnobs::parts, kPanel, Op::kShrink, texts_of(Numbers{1, 2, 4, 8}),
       "1, 2, 4 or 8, at least the split", "family panel: parts in which h leaves shrink"},
      {"expand_tile", &AutoKnobs::expand_tile, kPanel, Op::kExpand,
       texts_of(kernels::kPanelExpandTiles), "ROWSxCOLUMNSxLANES, as `plan --explain` says them",
       "family panel: tile of expand, with the most lanes that it takes", 0, true},
      {"chunks", &AutoKnobs::chunks, kPanel, Op::kExpand,
       texts_of(Numbers{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128}),
       "1 to 65536, at most the column tiles",
       "family panel: blocks that share the column tiles of a row tile of expand", 65536},
  };
  return kRows;
}

bool is_number(const KnobRow& row) {
  return std::holds_alternative<std::int64_t AutoKnobs::*>(row.member);
}

const KnobRow& row_of(const std::string& knob) {
  const auto found = std::ranges::find(rows(), knob, &KnobRow::name);
  return found == rows().end() ? throw std::logic_error("no knob " + knob) : *found;
}

constexpr const char* kLeftToAuto = "; 0 leaves it to `auto`";

std::vector<Knob> listed_knobs() {
  std::vector<Knob> knobs;
  for (const KnobRow& row : rows()) {
    Knob knob{{"tuning." + row.name, is_number(row) ? "integer" : "word", row.allowed,
               "as `auto` chooses", row.meaning},
              {},
              0};
    if (is_number(row)) {
      knob.doc.allowed += kLeftToAuto;
      knob.most = row.most > 0 ? row.most : *integer_in(row.values.back());
    } else if (!row.family) {
      knob.doc.fallback = "auto";
      knob.words = {"auto"};
      knob.words.insert(knob.words.end(), row.values.begin(), row.values.end());
      knob.doc.allowed = fmt::format("{}", fmt::join(knob.words, ", "));
    }
    knobs.push_back(std::move(knob));
  }
  return knobs;
}

std::optional<SettingFault> fault_of_value(const KnobRow& row, const std::string& value) {
  if (row.most > 0 || std::ranges::find(row.values, value) != row.values.end()) {
    return std::nullopt;
  }
  const bool number = is_number(row);
  return SettingFault{
      "tuning." + row.name,
      fmt::format("'tuning.{}' is {}", row.name, number ? value : "'" + value + "'"),
      fmt::format("{}{}", fmt::join(row.values, ", "), number ? kLeftToAuto : "")};
}

// A number that speaks of a family which is not asked for would be silently left out.
std::optional<SettingFault> fault_of_family(const KnobRow& row,
                                            const std::optional<AutoFamily>& asked) {
  if (!row.family || row.family == asked) {
    return std::nullopt;
  }
  return SettingFault{
      "tuning." + row.name,
      fmt::format("'tuning.{}' with tuning.family {}", row.name, asked ? name(*asked) : "auto"),
      fmt::format("tuning.family {}", name(*row.family)),
      {"tuning.family"}};
}

// A block adds no chains of another one, but in a cluster, which adds all.
std::optional<SettingFault> fault_of_parts(const AutoKnobs& knobs) {
  const kernels::PanelShrinkTile* tile = shrink_tile_named(knobs.shrink_tile);
  const auto fault_of_tile = [&](const std::string& allowed) {
    return SettingFault{"tuning.shrink_tile",
                        fmt::format("'tuning.shrink_tile' is {} with tuning.split {}, "
                                    "tuning.parts {}",
                                    knobs.shrink_tile, knobs.split, knobs.parts),
                        allowed};
  };
  const std::int32_t parts = kernels::panel_parts(kernels::kPanelGroupedLevels);
  if (tile != nullptr && tile->joined) {
    return (knobs.split == 0 || knobs.split == kernels::kChains) && knobs.parts <= 1
               ? std::nullopt
               : std::optional(fault_of_tile("split 8 and 1 part, or 0 of each"));
  }
  if (tile != nullptr && tile->grouped) {
    return knobs.split <= parts && (knobs.parts == 0 || knobs.parts == parts)
               ? std::nullopt
               : std::optional(fault_of_tile(
                     fmt::format("split up to {0} and {0} parts, or 0 of each", parts)));
  }
  if (knobs.parts == 0 || knobs.parts >= knobs.split) {
    return std::nullopt;
  }
  return SettingFault{
      "tuning.parts",
      fmt::format("'tuning.parts' is {} with tuning.split {}", knobs.parts, knobs.split),
      "at least the split"};
}

std::optional<SettingFault> fault_of(const Tuning& tuning) {
  const AutoKnobs knobs = knobs_of(tuning);
  for (const KnobValue& said : tuning) {
    if (auto fault = fault_of_family(row_of(said.knob), knobs.family)) {
      return fault;
    }
  }
  for (const KnobValue& said : tuning) {
    if (auto fault = fault_of_value(row_of(said.knob), said.value)) {
      return fault;
    }
  }
  return fault_of_parts(knobs);
}

bool is_of(const KnobRow& row, Op op) {
  return !row.half || (*row.half == Op::kShrink ? has_shrink(op) : has_expand(op));
}

}  // namespace

AutoKnobs knobs_of(const Tuning& tuning) {
  AutoKnobs knobs;
  for (const KnobValue& said : tuning) {
    std::visit([&](auto member) { read(knobs.*member, said.value); }, row_of(said.knob).member);
  }
  return knobs;
}

Tuning tuning_of(const AutoKnobs& knobs) {
  Tuning tuning;
  for (const KnobRow& row : rows()) {
    std::string text = std::visit([&](auto member) { return text_of(knobs.*member); }, row.member);
    if (!text.empty()) {
      tuning.push_back({row.name, std::move(text)});
    }
  }
  return tuning;
}

Tuning tuning_of_op(const Tuning& tuning, Op op) {
  Tuning left;
  std::copy_if(tuning.begin(), tuning.end(), std::back_inserter(left),
               [&](const KnobValue& said) { return is_of(row_of(said.knob), op); });
  return left;
}

Tuning with_value(const Tuning& tuning, const KnobValue& value) {
  Tuning said = tuning;
  said.push_back(value);
  return tuning_of(knobs_of(said));
}

std::vector<KnobValue> values_to_try(AutoFamily family) {
  std::vector<KnobValue> values;
  for (const bool last : {false, true}) {
    for (const KnobRow& row : rows()) {
      for (const std::string& value : row.values) {
        if (row.family == family && row.tried_last == last) {
          values.push_back({row.name, value});
        }
      }
    }
  }
  return values;
}

const TuningRules& tuning_rules() {
  static const TuningRules kRules{listed_knobs(), fault_of};
  return kRules;
}

// A half that the op has not launches nothing that a number could be of; who makes a half of a
// linear op leaves the other's numbers out (half_of).
std::string why_no_such_half(const Problem& problem) {
  if (tuning_of_op(problem.tuning, problem.op) == problem.tuning) {
    return "";
  }
  std::vector<std::string> allowed;
  for (const KnobRow& row : rows()) {
    if (row.half && is_of(row, problem.op)) {
      allowed.push_back(row.name);
    }
  }
  return fmt::format("tuning {{{}}}: op {} launches no {}; allowed: {}",
                     tuning_text(problem.tuning), name(problem.op),
                     name(has_shrink(problem.op) ? Op::kExpand : Op::kShrink),
                     fmt::join(allowed, ", "));
}

}  // namespace lora_bench
