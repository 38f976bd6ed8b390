#include "verify/metadata_faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>

namespace lora_bench {

std::vector<std::int64_t>& Spoiled::of(std::string_view name) const {
  return made[index_of(name)].values;
}

const std::vector<std::int64_t>& Spoiled::first_of(std::string_view name) const {
  return first[index_of(name)].values;
}

std::size_t Spoiled::index_of(std::string_view name) const {
  const std::vector<MetadataArray> arrays = outputs_of(problem);
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (arrays[i].name == name) {
      return i;
    }
  }
  throw std::logic_error(
      fmt::format("form {} has no array {}", lora_bench::name(problem.form), name));
}

void Spoiled::make_for(const std::vector<std::int32_t>& slots) const {
  EngineStep other = engine;
  other.slot_of_request = slots;
  std::vector<std::int32_t>& rows =
      problem.form == Form::kSampler ? other.request_of_sample : other.request_of_token;
  std::iota(rows.begin(), rows.end(), 0);
  made = make_metadata(problem, other);
}

namespace {

// Group `lost` is left out of the list, and those after it move up.
void lose_group(const Spoiled& to, std::size_t lost) {
  std::vector<std::int64_t>& ids = to.of("active_ids");
  std::vector<std::int64_t>& counts = to.of("counts");
  std::vector<std::int64_t>& active = to.of("active");
  if (static_cast<std::int64_t>(lost) >= active.front()) {
    return;
  }
  ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(lost));
  ids.push_back(-1);
  counts.erase(counts.begin() + static_cast<std::ptrdiff_t>(lost));
  counts.push_back(0);
  --active.front();
}

void lose_first_after_none(const Spoiled& to) {
  if (to.of("active_ids").front() == -1) {
    lose_group(to, 1);
  }
}

void lose_last_of_all(const Spoiled& to) {
  const std::int64_t active = to.of("active").front();
  if (active == to.problem.slots + 1) {
    lose_group(to, static_cast<std::size_t>(active) - 1);
  }
}

void keep_token_order(const Spoiled& to) {
  std::vector<std::int64_t>& order = to.of("token_order");
  std::iota(order.begin(), order.end(), 0);
}

void freeze_active(const Spoiled& to) { to.of("active") = to.first_of("active"); }

void freeze_flag(const Spoiled& to) { to.of("no_adapter") = to.first_of("no_adapter"); }

// Rows of no request repeat the row before them, as a batch padded with its last row.
void group_padded_rows(const Spoiled& to) {
  std::vector<std::int32_t> slots = to.adapters;
  for (std::size_t row = 1; row < slots.size(); ++row) {
    slots[row] = to.engine.request_of_token[row] < 0 ? slots[row - 1] : slots[row];
  }
  to.make_for(slots);
}

void drop_segments_beyond_first(const Spoiled& to) {
  const std::int64_t most = to.first_of("segments").front();
  if (to.of("segments").front() > most) {
    to.of("segment_starts").resize(static_cast<std::size_t>(most) + 1);
    to.of("adapter_of_segment").resize(static_cast<std::size_t>(most));
    to.of("segments").front() = most;
  }
}

void take_none_for_first_slot(const Spoiled& to) {
  if (to.adapters.empty() || to.adapters.front() >= 0) {
    return;
  }
  for (std::int64_t& slot : to.of("adapter_of_segment")) {
    slot = slot == to.problem.slots ? 0 : slot;
  }
}

void cut_segments_across_slots(const Spoiled& to) {
  std::vector<std::int64_t>& starts = to.of("segment_starts");
  for (std::size_t segment = 1; segment + 1 < starts.size(); ++segment) {
    starts[segment] =
        std::min(starts.back(), static_cast<std::int64_t>(segment) * to.problem.chunk);
  }
}

void reverse_groups(const Spoiled& to) {
  std::vector<std::int64_t>& order = to.of("token_order");
  const std::vector<std::int64_t>& starts = to.of("starts");
  for (std::int64_t group = 0; group < to.of("active").front(); ++group) {
    const auto at = static_cast<std::size_t>(group);
    std::reverse(order.begin() + starts[at], order.begin() + starts[at + 1]);
  }
}

void write_row_twice(const Spoiled& to) {
  std::vector<std::int64_t>& order = to.of("token_order");
  if (order.size() > 1) {
    order.back() = order[order.size() - 2];
  }
}

void lose_last_row(const Spoiled& to) {
  std::vector<std::int64_t>& order = to.of("permutation");
  if (!order.empty()) {
    order.pop_back();
  }
}

void leave_tail(const Spoiled& to) {
  const auto active = static_cast<std::size_t>(to.of("active").front());
  to.of("active_ids").resize(active);
  to.of("counts").resize(active);
}

void leave_segment_tail(const Spoiled& to) {
  to.of("segment_starts").resize(static_cast<std::size_t>(to.of("segments").front()) + 1);
}

void write_zeros_in_tail(const Spoiled& to) {
  std::vector<std::int64_t>& ids = to.of("active_ids");
  std::fill(ids.begin() + to.of("active").front(), ids.end(), 0);
}

void leave_active(const Spoiled& to) { to.of("active").clear(); }

// One slot more for each row and group of an adapter; the groups are the same.
void name_next_groups(const Spoiled& to) {
  for (const char* const array : {"adapter_of_token", "active_ids"}) {
    for (std::int64_t& slot : to.of(array)) {
      slot += slot >= 0 ? 1 : 0;
    }
  }
}

// One slot less for each row, so that rows of slot 0 have none.
void segment_by_slot_before(const Spoiled& to) {
  std::vector<std::int32_t> slots = to.adapters;
  for (std::int32_t& slot : slots) {
    slot -= slot >= 0 ? 1 : 0;
  }
  to.make_for(slots);
}

void cut_segments_of_two_chunks(const Spoiled& to) {
  const auto segments = to.of("segment_starts").size();
  MetadataProblem doubled = to.problem;
  doubled.chunk = std::min<std::int64_t>(128, 2 * doubled.chunk);
  to.made = make_metadata(doubled, to.engine);
  to.of("segment_starts").resize(segments, to.of("segment_starts").back());
  to.of("chunk").front() = to.problem.chunk;
}

void take_rank_of_next_slot(const Spoiled& to) {
  std::vector<std::int64_t>& rank = to.of("rank");
  std::rotate(rank.begin(), rank.begin() + 1, rank.end());
}

void sort_by_next_slot(const Spoiled& to) {
  for (std::int64_t& slot : to.of("adapters")) {
    slot += slot >= 0 ? 1 : 0;
  }
}

void leave_requests(const Spoiled& to) {
  const bool samples = to.problem.form == Form::kSampler;
  const std::vector<std::int32_t>& rows =
      samples ? to.engine.request_of_sample : to.engine.request_of_token;
  std::vector<std::int64_t>& extra = to.of("extra");
  std::vector<std::int64_t>& table = to.of("table");
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const std::int64_t request = std::max(0, rows[row]);
    extra[row] = request * to.problem.extra_vocabulary;
    table[row] = request * (to.problem.vocabulary + to.problem.extra_vocabulary);
  }
}

void pad_none_with_first_slot(const Spoiled& to) {
  std::vector<std::int64_t>& padded = to.of("padded");
  for (std::size_t row = 0; row < padded.size(); ++row) {
    padded[row] = to.adapters[row] < 0 ? static_cast<std::int64_t>(row) : padded[row];
  }
}

void forget_extra(const Spoiled& to) {
  std::vector<std::int64_t>& table = to.of("table");
  for (std::size_t row = 0; row < table.size(); ++row) {
    table[row] = std::max(0, to.adapters[row]) * to.problem.vocabulary;
  }
}

void compute_in_32_bits(const Spoiled& to) {
  for (std::int64_t& index : to.of("table")) {
    index = static_cast<std::int32_t>(index);
  }
}

void take_longest_of_request(const Spoiled& to) {
  std::int64_t longest = 0, length = 0;
  const std::vector<std::int32_t>& rows = to.engine.request_of_token;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    length = row > 0 && rows[row] == rows[row - 1] ? length + 1 : 1;
    longest = std::max(longest, length);
  }
  to.of("longest").front() = longest;
}

void count_runs_of_adapters_alone(const Spoiled& to) {
  const std::vector<std::int64_t>& adapters = to.of("adapters");
  to.of("batch_size").front() =
      static_cast<std::int64_t>(adapters.size()) - std::count(adapters.begin(), adapters.end(), -1);
}

// Of forms that group the rows.
std::vector<MetadataFault> faults_of_groups() {
  return {
      {{"metadata-first-group-after-none-lost",
        "where a row has no adapter the first group of an adapter is skipped", "group-lost",
        "vLLM #32235, SGLang #5928", Form::kKernel},
       lose_first_after_none},
      {{"metadata-groups-one-short",
        "with every slot in use and rows without an adapter the last group is dropped",
        "group-lost", "vLLM #40131", Form::kKernel},
       lose_last_of_all},
      {{"metadata-unsorted", "rows stay in token order beside sorted groups", "wrong-group",
        "vLLM #15979", Form::kKernel},
       keep_token_order},
      {{"metadata-frozen-active-count", "the count of groups stays that of the first launch",
        "step-before", "vLLM #34119", Form::kKernel},
       freeze_active},
      {{"metadata-frozen-flag", "the flag stays that of the first launch", "step-before",
        "vLLM #34119", Form::kKernel},
       freeze_flag},
      {{"metadata-padded-rows-grouped", "rows behind the batch are given to the last row's slot",
        "wrong-group", "vLLM #51122, #48862", Form::kKernel},
       group_padded_rows},
      {{"metadata-segments-beyond-captured",
        "segments beyond as many as the first launch had are not written", "step-before",
        "SGLang #28371", Form::kChunked},
       drop_segments_beyond_first},
      {{"metadata-none-first", "if the first row has no adapter, such rows are given to slot 0",
        "none-row-grouped", "SGLang #5928", Form::kChunked},
       take_none_for_first_slot},
      {{"metadata-segments-across-slots", "segments are cut every chunk of rows, whoever has them",
        "wrong-count", "design", Form::kChunked},
       cut_segments_across_slots},
      {{"metadata-segment-tail-left", "starts behind the last segment are not written",
        "stale-tail", "SGLang #28371", Form::kChunked},
       leave_segment_tail},
      {{"metadata-row-lost", "the last row is not placed", "row-lost", "design", Form::kChunked},
       lose_last_row},
      {{"metadata-row-twice", "the last place holds the row of the place before", "row-twice",
        "design", Form::kKernel},
       write_row_twice},
      {{"metadata-unstable-order", "the rows of each group are in reverse order", "order-lost",
        "design", Form::kKernel},
       reverse_groups},
      {{"metadata-tail-left", "ids and counts behind the last group are not written", "stale-tail",
        "vLLM #42008", Form::kKernel},
       leave_tail},
      {{"metadata-tail-of-zeros", "ids behind the last group are 0", "wrong-tail", "design",
        Form::kKernel},
       write_zeros_in_tail},
      {{"metadata-active-unwritten", "the count of groups is never written", "unwritten", "design",
        Form::kKernel},
       leave_active},
      {{"metadata-next-groups", "groups and rows are given to the slot after theirs",
        "slot-off-by-one", "design", Form::kKernel},
       name_next_groups},
      {{"metadata-slot-before", "rows are sorted by the slot before theirs", "slot-off-by-one",
        "design", Form::kChunked},
       segment_by_slot_before},
      {{"metadata-segments-of-two-chunks", "segments are cut at twice the chunk",
        "segment-too-long", "design", Form::kChunked},
       cut_segments_of_two_chunks},
      {{"metadata-rank-of-next-slot", "ranks are those of the slot after", "wrong-rank", "design",
        Form::kChunked},
       take_rank_of_next_slot}};
}

// Of forms that keep the rows in their order.
std::vector<MetadataFault> faults_of_rows() {
  return {{{"metadata-next-slot", "the slot after the right one is named", "slot-off-by-one",
            "design", Form::kPrefill},
           sort_by_next_slot},
          {{"metadata-longest-request", "the longest run is taken before neighbours are merged",
            "wrong-count", "design", Form::kPrefill},
           take_longest_of_request},
          {{"metadata-none-runs-uncounted", "runs without an adapter are not counted",
            "wrong-count", "design", Form::kPrefill},
           count_runs_of_adapters_alone},
          {{"metadata-requests-untranslated", "numbers of requests are taken for slots",
            "request-for-slot", "design", Form::kEmbedding},
           leave_requests},
          {{"metadata-extra-forgotten", "the table's rows for added tokens are not counted",
            "wrong-slot", "design", Form::kEmbedding},
           forget_extra},
          {{"metadata-32-bit-table", "an index of the table is computed in 32 bits",
            "truncated-index", "design", Form::kEmbedding},
           compute_in_32_bits},
          {{"metadata-none-padded-first", "a sampled row without an adapter points at slot 0",
            "none-row-grouped", "design", Form::kSampler},
           pad_none_with_first_slot},
          {{"metadata-input-written", "the ids of the rows are replaced by their slots",
            "input-changed", "design", Form::kSampler},
           nullptr,
           true},
          {{"metadata-row-too-many", "one entry behind the last is written", "written-outside",
            "vLLM #51122", Form::kEmbedding},
           nullptr,
           false,
           true}};
}

}  // namespace

const std::vector<MetadataFault>& known_metadata_faults() {
  static const std::vector<MetadataFault> kFaults = [] {
    std::vector<MetadataFault> faults = faults_of_groups();
    for (const std::vector<MetadataFault>& more : {faults_of_rows(), faults_of_align()}) {
      faults.insert(faults.end(), more.begin(), more.end());
    }
    return faults;
  }();
  return kFaults;
}

}  // namespace lora_bench
