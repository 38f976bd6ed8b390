#include "verify/metadata_looked.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/forms.h"

namespace lora_bench {

std::int64_t MetadataEvidence::got_at(std::size_t array, std::size_t entry) const {
  return index_at(arrays[array], got[array].data(), static_cast<std::int64_t>(entry));
}

bool MetadataEvidence::is_wrong(std::size_t array, std::size_t entry) const {
  const std::int64_t right = promised[array].values[entry];
  return right == kLeftAlone ? !is_unwritten(array, entry) : got_at(array, entry) != right;
}

bool MetadataEvidence::is_unwritten(std::size_t array, std::size_t entry) const {
  return got_at(array, entry) ==
         index_at(arrays[array], before[array].data(), static_cast<std::int64_t>(entry));
}

bool MetadataEvidence::is_poison(std::size_t array, std::size_t entry) const {
  const std::int64_t got_here = got_at(array, entry);
  return is_unwritten(array, entry) && (got_here == poison_of(promised[array].values[entry]) ||
                                        got_here == poison_of(static_cast<std::int64_t>(entry)));
}

namespace {

// Entries [first, end) of an array: each promised number that is among them comes to its place, and
// what else there is keeps its order.
void match_stretch(const MetadataArray& array, const std::vector<std::int64_t>& promised,
                   std::size_t first, std::size_t end, std::byte* got) {
  std::vector<std::int64_t> others;
  std::vector<bool> found(end - first);
  for (std::size_t at = first; at < end; ++at) {
    const std::int64_t value = index_at(array, got, static_cast<std::int64_t>(at));
    const auto place = std::lower_bound(promised.begin() + static_cast<std::ptrdiff_t>(first),
                                        promised.begin() + static_cast<std::ptrdiff_t>(end), value);
    const auto index = static_cast<std::size_t>(place - promised.begin());
    if (index < end && promised[index] == value && !found[index - first]) {
      found[index - first] = true;
    } else {
      others.push_back(value);
    }
  }
  auto other = others.begin();
  for (std::size_t at = first; at < end; ++at) {
    put_index(array, got, static_cast<std::int64_t>(at),
              found[at - first] ? promised[at] : *other++);
  }
}

}  // namespace

std::vector<std::vector<std::byte>> in_promised_order(const MetadataProblem& problem,
                                                      const std::vector<FilledArray>& promised,
                                                      std::vector<std::vector<std::byte>> outputs) {
  if (problem.form != Form::kAlign) {
    return outputs;
  }
  const MetadataArray order = outputs_of(problem).front();
  const std::vector<std::int64_t>& pairs = promised[0].values;
  const std::vector<std::int64_t>& experts = promised[1].values;
  const auto block = static_cast<std::size_t>(problem.block);
  const auto blocks_of_list = static_cast<std::size_t>(problem.most_pairs()) / block;
  for (std::size_t first = 0; first < experts.size();) {
    std::size_t end = first + 1;  // the blocks of one slot and expert
    while (end < experts.size() && end % blocks_of_list != 0 && experts[end] == experts[first]) {
      ++end;
    }
    if (experts[first] >= 0) {
      const auto begin = pairs.begin() + static_cast<std::ptrdiff_t>(first * block);
      const auto padding = std::find(
          begin, pairs.begin() + static_cast<std::ptrdiff_t>(end * block), problem.pairs());
      match_stretch(order, pairs, first * block, static_cast<std::size_t>(padding - pairs.begin()),
                    outputs.front().data());
    }
    first = end;
  }
  return outputs;
}

std::optional<std::size_t> Looked::array(std::string_view name) const {
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (arrays[i].name == name) {
      return i;
    }
  }
  return std::nullopt;
}

std::string Looked::named(const WrongEntry& entry) const {
  return fmt::format("{}[{}]", arrays[entry.first].name, entry.second);
}

std::string Looked::wrong_text(const WrongEntry& entry) const {
  const MetadataArray& array = arrays[entry.first];
  const std::string right = index_text(array, expected(entry));
  return is_poison(entry) ? fmt::format("was not written, where {} is right", right)
                          : fmt::format("holds {}, not {}", index_text(array, got(entry)), right);
}

std::vector<std::int64_t> Looked::left(std::size_t array) const {
  std::vector<std::int64_t> values;
  for (std::size_t entry = 0; entry < evidence.promised[array].values.size(); ++entry) {
    values.push_back(evidence.got_at(array, entry));
  }
  return values;
}

std::size_t Looked::groups_left(std::size_t array) const {
  const auto promised = std::ssize(evidence.promised[array].values);
  const auto count = this->array(problem().form == Form::kKernel ? "active" : "segments");
  const std::int64_t groups = count ? evidence.got_at(*count, 0) : promised;
  return static_cast<std::size_t>(std::clamp<std::int64_t>(groups, 0, promised));
}

Looked looked_at(const MetadataEvidence& evidence) {
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
  return looked;
}

bool all_wrong(const Looked& looked, const std::function<bool(const WrongEntry&)>& holds) {
  return std::all_of(looked.wrong.begin(), looked.wrong.end(), holds);
}

std::optional<std::size_t> order_of(const Looked& looked) {
  const auto order = looked.array("token_order");
  const auto found = order ? order : looked.array("permutation");
  return found && !looked.evidence.promised[*found].values.empty() ? found : std::nullopt;
}

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

std::int64_t slot_of_row(const Looked& looked, const WrongEntry& entry) {
  const std::int32_t adapter = looked.adapters[entry.second];
  if (adapter >= 0) {
    return adapter;
  }
  const bool first = looked.holds(entry, "extra") || looked.holds(entry, "table");
  return looked.holds(entry, "padded") ? looked.problem().slots - 1 : (first ? 0 : -1);
}

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

bool stands_for_none(const Looked& looked, const WrongEntry& entry) {
  const bool of_rows = looked.holds(entry, "adapter_of_token") || looked.holds(entry, "padded") ||
                       looked.holds(entry, "extra") || looked.holds(entry, "table") ||
                       (looked.holds(entry, "adapters") && looked.problem().form == Form::kSampler);
  const bool none = of_rows && looked.adapters[entry.second] < 0;
  const bool group = (looked.holds(entry, "active_ids") || looked.holds(entry, "adapters")) &&
                     looked.expected(entry) == -1 && !is_tail(looked, entry);
  const bool segment =
      looked.holds(entry, "adapter_of_segment") && looked.expected(entry) == looked.problem().slots;
  return none || group || segment;
}

bool is_slot_of_segment(const Looked& looked, const WrongEntry& segment) {
  const std::size_t starts = *looked.array("segment_starts");
  const std::int64_t place = looked.evidence.got_at(starts, segment.second);
  const auto rows = std::ssize(looked.adapters);
  if (place < 0 || place >= rows) {
    return false;
  }
  const std::int64_t row =
      looked.evidence.got_at(*looked.array("permutation"), static_cast<std::size_t>(place));
  if (row < 0 || row >= rows) {
    return false;
  }
  const std::int64_t adapter = looked.adapters[static_cast<std::size_t>(row)];
  return looked.got(segment) == (adapter < 0 ? looked.problem().slots : adapter);
}

std::vector<std::int64_t> slots_given(const Looked& looked) {
  if (const auto mapping = looked.array("adapter_of_token")) {
    return looked.left(*mapping);
  }
  if (looked.problem().form != Form::kChunked) {
    return {};
  }
  const std::size_t segments = *looked.array("adapter_of_segment");
  const std::size_t starts = *looked.array("segment_starts");
  const std::vector<std::int64_t> order = looked.left(*looked.array("permutation"));
  std::vector<std::int64_t> given(order.size(), kNoAdapter);
  for (std::size_t segment = 0; segment < looked.groups_left(segments); ++segment) {
    const std::int64_t end = looked.evidence.got_at(starts, segment + 1);
    const std::int64_t slot = looked.evidence.got_at(segments, segment);
    for (std::int64_t place = looked.evidence.got_at(starts, segment); place < end; ++place) {
      const std::int64_t row =
          place >= 0 && place < std::ssize(order) ? order[static_cast<std::size_t>(place)] : -1;
      if (row < 0 || row >= std::ssize(given)) {
        return {};
      }
      given[static_cast<std::size_t>(row)] = slot == looked.problem().slots ? kNoAdapter : slot;
    }
  }
  return given;
}

}  // namespace lora_bench
