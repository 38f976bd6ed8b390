#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <utility>

#include "ops/backends.h"
#include "plan/forms.h"
#include "verify/metadata_proof.h"

namespace lora_bench {
namespace {

constexpr std::string_view kPrefix = "metadata-";

// What a faulty builder is about to write, and what it has kept of the launch before.
struct Spoiled {
  const MetadataProblem& problem;
  const EngineStep& engine;
  const std::vector<std::int32_t>& adapters;  // of each row
  std::vector<FilledArray>& made;
  const std::vector<FilledArray>& first;  // of the first launch

  [[nodiscard]] std::vector<std::int64_t>& of(std::string_view name) const {
    const std::vector<MetadataArray> arrays = outputs_of(problem);
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      if (arrays[i].name == name) {
        return made[i].values;
      }
    }
    throw std::logic_error(fmt::format("form {} has no array {}", name, name));
  }
  [[nodiscard]] const std::vector<std::int64_t>& first_of(std::string_view name) const {
    const std::vector<MetadataArray> arrays = outputs_of(problem);
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      if (arrays[i].name == name) {
        return first[i].values;
      }
    }
    throw std::logic_error(fmt::format("no array {}", name));
  }
  // The metadata of a step whose rows have other slots.
  void make_for(const std::vector<std::int32_t>& slots) const {
    EngineStep other = engine;
    other.slot_of_request = slots;
    std::vector<std::int32_t>& rows =
        problem.form == Form::kSampler ? other.request_of_sample : other.request_of_token;
    std::iota(rows.begin(), rows.end(), 0);
    made = make_metadata(problem, other);
  }
};

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

struct MetadataFault {
  MetadataFaultDoc doc;
  void (*spoil)(const Spoiled&) = nullptr;
  bool writes_input = false, writes_past = false;
};

const std::vector<MetadataFault>& known_faults() {
  static const std::vector<MetadataFault> kFaults{
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
      {{"metadata-next-slot", "the slot after the right one is named", "slot-off-by-one", "design",
        Form::kPrefill},
       sort_by_next_slot},
      {{"metadata-longest-request", "the longest run is taken before neighbours are merged",
        "wrong-count", "design", Form::kPrefill},
       take_longest_of_request},
      {{"metadata-none-runs-uncounted", "runs without an adapter are not counted", "wrong-count",
        "design", Form::kPrefill},
       count_runs_of_adapters_alone},
      {{"metadata-requests-untranslated", "numbers of requests are taken for slots",
        "request-for-slot", "design", Form::kEmbedding},
       leave_requests},
      {{"metadata-extra-forgotten", "the table's rows for added tokens are not counted",
        "wrong-slot", "design", Form::kEmbedding},
       forget_extra},
      {{"metadata-32-bit-table", "an index of the table is computed in 32 bits", "truncated-index",
        "design", Form::kEmbedding},
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
  return kFaults;
}

class FaultyBuilder final : public MetadataBuilder {
 public:
  explicit FaultyBuilder(const MetadataFault& fault) : fault_(fault) {}

  [[nodiscard]] Support supports(const MetadataProblem& problem,
                                 const DeviceFacts&) const override {
    return problem.form == fault_.doc.form
               ? Support{}
               : Support{false, fmt::format("a fault of form {}", name(fault_.doc.form))};
  }

  void launch(const MetadataProblem& problem, const MetadataOperands& operands,
              Stream) const override {
    const EngineStep engine = engine_at(problem, operands.inputs);
    std::vector<FilledArray> made = make_metadata(problem, engine);
    if (first_.empty()) {
      first_ = made;
    }
    const std::vector<std::int32_t> adapters = engine.adapters_of(
        problem.form == Form::kSampler ? engine.request_of_sample : engine.request_of_token);
    if (fault_.spoil != nullptr) {
      fault_.spoil({problem, engine, adapters, made, first_});
    }
    const std::vector<MetadataArray> outputs = outputs_of(problem);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      auto* const to = static_cast<std::byte*>(operands.outputs[i]);
      if (fault_.writes_past) {
        made[i].values.push_back(0);
      }
      for (std::size_t entry = 0; entry < made[i].values.size(); ++entry) {
        put_index(outputs[i], to, static_cast<std::int64_t>(entry), made[i].values[entry]);
      }
    }
    if (fault_.writes_input && !adapters.empty()) {
      auto* const rows = static_cast<std::byte*>(const_cast<void*>(operands.inputs.front()));
      put_index(inputs_of(problem).front(), rows, 0, adapters.front());
    }
  }

 private:
  const MetadataFault& fault_;
  mutable std::vector<FilledArray> first_;
};

// Makes metadata alone.
class MetadataMutant final : public Backend {
 public:
  explicit MetadataMutant(const MetadataFault& fault)
      : name_(fmt::format("mutant:{}", fault.doc.fault)),
        summary_(fault.doc.meaning),
        builder_(fault) {}

  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] std::string_view summary() const override { return summary_; }
  [[nodiscard]] Space space() const override { return Space::kHost; }
  [[nodiscard]] Support supports(const Problem&, const DeviceFacts&) const override {
    return {false, "a mutant of op metadata"};
  }
  [[nodiscard]] Numerics numerics(const Problem&) const override { return {}; }
  [[nodiscard]] std::int64_t workspace_bytes(const Problem&) const override { return 0; }
  void launch(const Problem&, const Operands&, Stream) const override {}
  [[nodiscard]] const MetadataBuilder* metadata() const override { return &builder_; }

 private:
  std::string name_, summary_;
  FaultyBuilder builder_;
};

Case metadata_case(const std::string& id, Form form) {
  Case spec;
  spec.scenario = "self-test";
  spec.id = id;
  spec.op = Op::kMetadata;
  spec.metadata.form = form;
  spec.metadata.samples = 2;
  spec.batch.decode = 24;
  spec.batch.prefill = {40, 40, 7, 19};
  spec.plan.max_tokens = 140;
  spec.adapters.slots = 6;
  spec.adapters.rank.list = {8, 0, 16};
  spec.adapters.max_rank = 16;
  spec.adapters.scale = {0.5, 2};
  spec.no_adapter = 0.25;
  spec.skew.kind = Skew::kZipf;
  spec.skew.parameter = 1;
  spec.prefill_skew = spec.skew;
  return spec;
}

MetadataStep step_of_case(const Case& spec) {
  return draw_metadata(spec, draw_batch(spec), draw_adapters(spec));
}

}  // namespace

std::span<const MetadataFaultDoc> metadata_faults() {
  static const std::vector<MetadataFaultDoc> kDocs = [] {
    std::vector<MetadataFaultDoc> docs;
    for (const MetadataFault& fault : known_faults()) {
      docs.push_back(fault.doc);
    }
    return docs;
  }();
  return kDocs;
}

std::unique_ptr<Backend> make_metadata_mutant(std::string_view fault) {
  for (const MetadataFault& known : known_faults()) {
    if (known.doc.fault == fault) {
      return std::make_unique<MetadataMutant>(known);
    }
  }
  return nullptr;
}

std::vector<TellingMetadata> telling_metadata() {
  std::vector<TellingMetadata> steps;
  for (const std::string_view form_name : EnumNames<Form>::kNames) {
    const Form form = *named<Form>(form_name);
    const auto add = [&](const char* what, auto change) {
      Case spec = metadata_case(fmt::format("{}-{}", form_name, what), form);
      change(spec);
      steps.push_back({spec.id, step_of_case(spec)});
    };
    add("mixed", [](Case&) {});
    add("neighbours", [](Case& spec) {
      spec.order = Order::kSorted;
      spec.metadata.idle_segments = true;
    });
    add("none-first", [](Case& spec) {
      spec.order = Order::kAsArrived;
      spec.skew.kind = spec.prefill_skew.kind = Skew::kTrace;
      spec.skew.trace = spec.prefill_skew.trace = {-1, 1, 0, -1, 1};
      spec.metadata.idle_segments = true;
      spec.metadata.largest_chunk = 32;
    });
    add("all-slots", [](Case& spec) {
      spec.adapters.slots = 2;
      spec.adapters.rank.list = {8};
      spec.adapters.scale = {1};
      spec.adapters.active = 2;
    });
    add("one-row", [](Case& spec) {
      spec.batch = {1, {}};
      spec.plan.max_tokens = 0;
      spec.no_adapter = 0;
      spec.adapters.slots = 1;
      spec.adapters.rank.list = {8};
      spec.adapters.scale = {1};
    });
    add("large-table", [](Case& spec) {
      spec.adapters.slots = 300;
      spec.skew.kind = spec.prefill_skew.kind = Skew::kUniform;
      spec.metadata.vocabulary = 16000000;
    });
  }
  return steps;
}

SelfTestRow hunt_metadata(const MetadataFaultDoc& doc, const std::vector<TellingMetadata>& steps) {
  SelfTestRow row;
  row.fault = doc.fault;
  const std::unique_ptr<Memory> memory = make_host_memory();
  for (const TellingMetadata& telling : steps) {
    const std::unique_ptr<Backend> mutant = make_metadata_mutant(doc.fault);
    if (!mutant->metadata()->supports(telling.step.problem, facts_of(Space::kHost)).yes) {
      continue;
    }
    const Verdict verdict = verify_metadata(telling.step, *mutant->metadata(), *memory, true);
    if (verdict.failure) {
      row.caught = true;
      row.level = name(verdict.failure->level);
      row.hypothesis = verdict.failure->hypothesis;
      row.case_id = telling.id;
      break;
    }
  }
  row.named_right = doc.hypothesis.empty() || row.hypothesis == doc.hypothesis;
  return row;
}

void try_right_metadata(const std::vector<TellingMetadata>& steps, SelfTestReport& report) {
  for (const BackendEntry& entry : backend_registry()) {
    if (!entry.why_not_here.empty()) {
      continue;
    }
    const std::unique_ptr<Backend> backend = entry.make();
    const MetadataBuilder* builder = backend->metadata();
    if (builder == nullptr) {
      continue;
    }
    const std::unique_ptr<Memory> memory =
        backend->space() == Space::kDevice ? make_device_memory() : make_host_memory();
    for (const TellingMetadata& telling : steps) {
      if (!builder->supports(telling.step.problem, facts_of(backend->space())).yes) {
        continue;
      }
      const Verdict verdict = verify_metadata(telling.step, *builder, *memory, true);
      ++report.correct_cases;
      report.correct_passed += verdict.status == Status::kPassed ? 1 : 0;
      if (verdict.failure) {
        ++report.false_alarms;
        report.alarm_messages.push_back(
            fmt::format("{}, {}: {}", entry.name, telling.id, verdict.message));
      }
    }
  }
}

}  // namespace lora_bench
