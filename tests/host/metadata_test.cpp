#include "workload/metadata.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "measure/metadata_time.h"
#include "ops/array_buffers.h"
#include "ops/backends.h"
#include "plan/forms.h"
#include "support/draws.h"
#include "verify/metadata_proof.h"

using namespace lora_bench;

namespace {

using Values = std::vector<std::int64_t>;
using Arrays = std::vector<Values>;

constexpr Form kForms[] = {Form::kKernel,    Form::kPrefill, Form::kSampler,
                           Form::kEmbedding, Form::kChunked, Form::kAlign};

Arrays values_of(const std::vector<FilledArray>& arrays) {
  Arrays values;
  for (const FilledArray& array : arrays) {
    values.push_back(array.values);
  }
  return values;
}

// The batch that docs/plan.md works out by hand: rows with slots 2 2 -1 0 2 0 -1 -1. Request 1 has
// no adapter, the last row has no request, and requests 2 and 3 are named by no row.
MetadataStep example(Form form, bool idle_segments = false) {
  MetadataStep step;
  step.problem = {.form = form,
                  .tokens = 8,
                  .samples = 3,
                  .requests = 6,
                  .slots = 3,
                  .vocabulary = 100,
                  .extra_vocabulary = 16,
                  .chunk = 16,
                  .idle_segments = idle_segments,
                  .experts = 4,
                  .top_k = 2,
                  .block = 16};
  step.engine = {.request_of_token = {4, 4, 1, 0, 5, 0, 1, -1},
                 .request_of_sample = {4, 1, 0},
                 .slot_of_request = {0, -1, 1, 1, 2, 2},
                 .rank = {8, 16, 0},
                 .scale = {2.0F, 1.0F, 0.5F},
                 .expert_of_choice = {0, 2, 2, 3, 1, 0, 3, 1, -1, 2, 0, 3, 1, 2, 0, 1}};
  return step;
}

// The lists that docs/plan.md works out by hand: three rows of two experts each, the second without
// an adapter, the others with slot 1. Its blocks of 4 are too small for a scenario.
MetadataStep example_of_lists() {
  MetadataStep step;
  step.problem = {.form = Form::kAlign,
                  .tokens = 3,
                  .requests = 2,
                  .slots = 2,
                  .chunk = 16,
                  .experts = 4,
                  .top_k = 2,
                  .block = 4};
  step.engine = {.request_of_token = {1, 0, 1},
                 .request_of_sample = {},
                 .slot_of_request = {-1, 1},
                 .rank = {8, 16},
                 .scale = {2.0F, 1.0F},
                 .expert_of_choice = {0, 2, 2, 3, 2, 1}};
  return step;
}

std::int64_t bits(float number) { return std::bit_cast<std::int32_t>(number); }

// What both the reference and the functions of src/plan say of the example.
Arrays agreed(const MetadataStep& step) {
  const Arrays made = values_of(make_metadata(step.problem, step.engine));
  CHECK(made == values_of(promised_metadata(step.problem, step.engine)));
  return made;
}

Case drawn_case(Form form, std::uint64_t seed) {
  std::uint64_t drawn = 0;
  const auto below = [&](std::uint64_t bound) {
    return static_cast<std::int64_t>(random_below(seed, 77, drawn++, bound));
  };
  Case spec;
  spec.seed = seed;
  spec.op = Op::kMetadata;
  spec.metadata.form = form;
  spec.metadata.samples = below(4);
  spec.metadata.extra_vocabulary = below(300);
  spec.metadata.vocabulary = 1 + below(200000);
  spec.plan.largest_chunk = 16 << below(4);
  spec.plan.idle_segments = below(2) == 0;
  const bool empty = below(12) == 0;
  spec.batch.decode = empty ? 0 : below(40);
  for (std::int64_t prompts = empty ? 0 : below(5); prompts > 0; --prompts) {
    spec.batch.prefill.push_back(1 + below(150));
  }
  const auto sequences = spec.batch.decode + static_cast<std::int64_t>(spec.batch.prefill.size());
  spec.metadata.requests = below(3) == 0 ? sequences + below(60) : 0;
  spec.adapters.slots = 1 + below(30);
  spec.adapters.rank.list = {8, 0, 16};
  spec.adapters.scale = {0.5, 2};
  spec.adapters.max_rank = 16;
  spec.plan.max_tokens = !empty && below(2) == 0 ? 1000 : 0;
  spec.no_adapter = static_cast<double>(below(5)) / 4;
  spec.order = static_cast<Order>(below(3));
  spec.skew.kind = spec.prefill_skew.kind = below(2) == 0 ? Skew::kUniform : Skew::kZipf;
  spec.skew.parameter = spec.prefill_skew.parameter = 1;
  if (form == Form::kAlign) {
    spec.experts.count = 1 + below(40);
    spec.experts.top_k =
        1 + below(std::min<std::uint64_t>(6, static_cast<std::uint64_t>(spec.experts.count)));
    spec.metadata.block = 16 << below(4);
  }
  return spec;
}

// Experts of each row, all different; some of them elsewhere.
std::vector<std::int32_t> drawn_choices(const Case& spec, std::size_t rows) {
  const std::int64_t count = spec.experts.count;
  const auto steps = static_cast<std::uint64_t>(count);
  std::vector<std::int32_t> choices;
  for (std::uint64_t row = 0; row < rows; ++row) {
    const auto first = static_cast<std::int64_t>(random_below(spec.seed, 78, row, steps));
    for (std::int64_t choice = 0; choice < spec.experts.top_k; ++choice) {
      const bool elsewhere = random_below(spec.seed, 79, choices.size(), 6) == 0;
      choices.push_back(elsewhere ? -1 : static_cast<std::int32_t>((first + choice) % count));
    }
  }
  return choices;
}

MetadataStep drawn_step(const Case& spec) {
  Batch batch = draw_batch(spec);
  if (spec.experts.any()) {
    batch.expert_of_choice = drawn_choices(spec, batch.adapter_of_token.size());
  }
  return draw_metadata(spec, batch, draw_adapters(spec));
}

std::vector<std::vector<std::byte>> bytes_of_arrays(const MetadataProblem& problem,
                                                    const Arrays& values) {
  const std::vector<MetadataArray> arrays = outputs_of(problem);
  std::vector<std::vector<std::byte>> bytes;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    bytes.emplace_back(static_cast<std::size_t>(arrays[i].bytes()), std::byte{0x77});
    for (std::size_t entry = 0; entry < values[i].size(); ++entry) {
      put_index(arrays[i], bytes[i].data(), static_cast<std::int64_t>(entry), values[i][entry]);
    }
  }
  return bytes;
}

// The builder of backend cpu with a test looking on, which may spoil what it wrote.
class Observed final : public MetadataBuilder {
 public:
  using After = std::function<void(const MetadataProblem&, const ArrayOperands&)>;
  explicit Observed(After after) : after_(std::move(after)) {}
  [[nodiscard]] Support supports(const MetadataProblem&, const DeviceFacts&) const override {
    return {};
  }
  void launch(const MetadataProblem& problem, const ArrayOperands& operands,
              Stream stream) const override {
    cpu_->metadata()->launch(problem, operands, stream);
    after_(problem, operands);
  }

 private:
  After after_;
  std::unique_ptr<Backend> cpu_ = make_cpu_backend({1, ""});
};

void spoil_first_entry(const MetadataProblem& problem, const ArrayOperands& operands) {
  put_index(outputs_of(problem).front(), static_cast<std::byte*>(operands.outputs.front()), 0, -5);
}

}  // namespace

TEST_CASE("metadata: the example of docs/plan.md, from requests, by the reference and by plans") {
  CHECK(agreed(example(Form::kKernel)) == Arrays{{2, 2, -1, 0, 2, 0, -1, -1},
                                                 {2, 6, 7, 3, 5, 0, 1, 4},
                                                 {-1, 0, 2, -1},
                                                 {3, 2, 3, 0},
                                                 {0, 3, 5, 8, 0},
                                                 {3},
                                                 {0}});
  CHECK(agreed(example(Form::kPrefill)) ==
        Arrays{{0, 2, 3, 4, 5, 6}, {2, 1, 1, 1, 1, 2}, {2, -1, 0, 2, 0, -1}, {6}, {2}, {8}, {0}});
  CHECK(agreed(example(Form::kSampler)) == Arrays{{2, -1, 0}, {6, 7, 2}});
  CHECK(agreed(example(Form::kEmbedding)) ==
        Arrays{{32, 32, 0, 0, 32, 0, 0, 0}, {232, 232, 0, 0, 232, 0, 0, 0}});
  CHECK(agreed(example(Form::kChunked)) == Arrays{{3, 5, 0, 1, 4, 2, 6, 7},
                                                  {0, 2, 5, 5},
                                                  {0, 2},
                                                  {8, 16, 0},
                                                  {bits(2.0F), bits(1.0F), bits(0.5F)},
                                                  {2},
                                                  {16}});
  CHECK(agreed(example(Form::kChunked, true)) ==
        Arrays{{3, 5, 0, 1, 4, 2, 6, 7},
               {0, 2, 5, 8, 8},
               {0, 2, 3},
               {8, 16, 0, 0},
               {bits(2.0F), bits(1.0F), bits(0.5F), bits(0.0F)},
               {3},
               {16}});
}

TEST_CASE("metadata: the lists of docs/plan.md, by the reference and by plans") {
  const MetadataStep step = example_of_lists();
  CHECK(step.problem.most_pairs() == 20);
  const std::int64_t free = kLeftAlone;
  Values order(20, free);
  order.insert(order.end(), {0, 6, 6, 6, 5, 6, 6, 6, 1, 4, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6});
  const Arrays lists{
      order, {free, free, free, free, free, 0, 1, 2, -1, -1}, {free, 12}, {-1, 1, -1}, {0, 1, 0}};
  CHECK(agreed(step) == lists);
  const std::unique_ptr<Backend> cpu = make_cpu_backend({1, ""});
  CHECK(verify_metadata(step, *cpu->metadata(), *make_host_memory(), true).message == "");
}

TEST_CASE("metadata: room for lists is so much that no choice of experts exceeds it") {
  CHECK(most_listed(6, 4, 4) == 20);
  CHECK(most_listed(3, 4, 16) == 48);
  CHECK(most_listed(4, 4, 16) == 64);
  CHECK(most_listed(5, 4, 16) == 80);
  CHECK(most_listed(0, 4, 16) == 0);
  CHECK_THROWS_WITH_AS((void)most_listed(6, 4, 0), "a block of 0 pairs; allowed: 1 or more",
                       std::invalid_argument);
}

TEST_CASE("metadata: pairs of an expert may stand in any order, and padding behind them alone") {
  const MetadataStep step = example(Form::kAlign);
  const auto verdict_on = [&](std::int64_t first, std::int64_t second) {
    const Observed swaps([&](const MetadataProblem& problem, const ArrayOperands& operands) {
      const MetadataArray order = outputs_of(problem).front();
      auto* const places = static_cast<std::byte*>(operands.outputs.front());
      const std::int64_t held = index_at(order, places, first);
      put_index(order, places, first, index_at(order, places, second));
      put_index(order, places, second, held);
    });
    return verify_metadata(step, swaps, *make_host_memory(), false).message;
  };
  // Slot 0 lists 10, 7 and 6 11, slot 1 nothing, slot 2 0, then 1 2 9, then 3.
  CHECK(verdict_on(32, 33) == "");
  CHECK(verdict_on(176, 178) == "");
  CHECK(verdict_on(33, 34).find("pair_order[33]: expected 11, got 16") != std::string::npos);
  CHECK(verdict_on(0, 16).find("pair_order[0]: expected 10, got 7") != std::string::npos);
  const Observed writes([](const MetadataProblem& problem, const ArrayOperands& operands) {
    put_index(outputs_of(problem).front(), static_cast<std::byte*>(operands.outputs.front()), 80,
              16);
  });
  CHECK(verify_metadata(step, writes, *make_host_memory(), false)
            .message.find("pair_order[80]: nobody is to write it, got 16") != std::string::npos);
}

TEST_CASE("metadata: choices that are none, and too few of them, are refused") {
  MetadataStep step = example(Form::kAlign);
  step.engine.expert_of_choice[3] = 4;
  CHECK_THROWS_WITH_AS((void)make_metadata(step.problem, step.engine), "expert 4 of 4",
                       std::invalid_argument);
  step.engine.expert_of_choice.pop_back();
  CHECK_THROWS_WITH_AS((void)make_metadata(step.problem, step.engine),
                       "15 choices for 8 tokens of 2 experts", std::invalid_argument);
}

TEST_CASE("metadata: without an adapter kernel promises no order, and the flags are set") {
  const auto without = [](Form form) {
    MetadataStep step = example(form);
    step.engine.request_of_token = {1, 1, 1, -1, -1, 1, 1, -1};
    return agreed(step);
  };
  CHECK(without(Form::kKernel) ==
        Arrays{{}, {}, {-1, -1, -1, -1}, {0, 0, 0, 0}, {0, 0, 0, 0, 0}, {0}, {1}});
  CHECK(without(Form::kPrefill) == Arrays{{0}, {8}, {-1}, {1}, {8}, {8}, {1}});
  CHECK(without(Form::kChunked)[5] == Values{0});
  CHECK(without(Form::kChunked)[1] == Values{0, 0, 0, 0});
}

TEST_CASE("metadata: the reference and the functions of src/plan agree on every drawn step") {
  std::set<std::int64_t> chunks;
  std::int64_t holes = 0, idle = 0, empty = 0;
  for (const Form form : kForms) {
    for (std::int64_t turn = 0; turn < test::draws(120); ++turn) {
      const MetadataStep step = drawn_step(drawn_case(form, static_cast<std::uint64_t>(turn)));
      CAPTURE(std::string(name(form)));
      CAPTURE(turn);
      agreed(step);
      for (const OtherStep& other : other_steps(step)) {
        CAPTURE(std::string(other.name));
        agreed({step.problem, other.engine});
      }
      const std::vector<std::int32_t>& rows = step.engine.request_of_token;
      const std::set<std::int32_t> named(rows.begin(), rows.end());
      holes += static_cast<std::int64_t>(named.size()) < step.problem.requests ? 1 : 0;
      chunks.insert(step.problem.chunk);
      idle += step.problem.idle_segments ? 1 : 0;
      empty += step.problem.tokens == 0 ? 1 : 0;
    }
  }
  CHECK(chunks.size() >= 3);
  CHECK(holes > 0);
  CHECK(idle > 0);
  if (!test::kSanitized) {
    CHECK(chunks == std::set<std::int64_t>{16, 32, 64, 128});
    CHECK(empty > 0);
  }
}

TEST_CASE("metadata: a drawn step names each sequence by a request of its own, with its adapter") {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    CAPTURE(seed);
    const Case spec = drawn_case(Form::kSampler, seed);
    const Batch batch = draw_batch(spec);
    const MetadataStep step = drawn_step(spec);
    CHECK(step.engine.adapters_of(step.engine.request_of_token) == batch.adapter_of_token);
    CHECK(step.problem.tokens == std::ssize(batch.adapter_of_token));
    CHECK(std::ssize(step.engine.slot_of_request) == step.problem.requests);
    std::set<std::int32_t> requests;
    std::vector<std::int32_t> samples;
    for (const Sequence& sequence : batch.sequences) {
      const auto first = static_cast<std::size_t>(sequence.first_token);
      const std::int32_t request = step.engine.request_of_token[first];
      CHECK(requests.insert(request).second);
      samples.insert(samples.end(), static_cast<std::size_t>(spec.metadata.samples), request);
      for (std::int64_t token = 0; token < sequence.tokens; ++token) {
        CHECK(step.engine.request_of_token[first + static_cast<std::size_t>(token)] == request);
      }
    }
    CHECK(step.engine.request_of_sample == samples);
  }
}

TEST_CASE("metadata: a request or slot that is not there is refused") {
  MetadataStep step = example(Form::kKernel);
  step.engine.request_of_token[3] = 6;
  CHECK_THROWS_WITH_AS((void)make_metadata(step.problem, step.engine), "request 6 of a table of 6",
                       std::invalid_argument);
  step.engine.request_of_token[3] = -2;
  CHECK_THROWS_AS((void)make_metadata(step.problem, step.engine), std::invalid_argument);
  for (const Form form : kForms) {
    step = example(form);
    step.engine.slot_of_request[4] = 3;
    CHECK_THROWS_AS((void)make_metadata(step.problem, step.engine), std::invalid_argument);
  }
}

TEST_CASE("metadata: arrays hold what is put into them, as 32 bits, 64 bits or a float") {
  std::vector<std::byte> bytes(24, std::byte{0x11});
  const MetadataArray wide{"wide", "", Index::kInt64, 3};
  put_index(wide, bytes.data(), 1, std::int64_t{-1} << 40);
  CHECK(index_at(wide, bytes.data(), 1) == std::int64_t{-1} << 40);
  CHECK(index_at(wide, bytes.data(), 0) == 0x1111111111111111);
  const MetadataArray narrow{"narrow", "", Index::kInt32, 6};
  put_index(narrow, bytes.data(), 5, -7);
  CHECK(index_at(narrow, bytes.data(), 5) == -7);
  CHECK(index_at(narrow, bytes.data(), 4) == 0x11111111);
  CHECK(index_text(narrow, -7) == "-7");
  CHECK(index_text({"scale", "", Index::kFloat32, 1}, bits(0.5F)) == "0.5");
}

TEST_CASE("metadata: a launch reads at its addresses the step that was put there") {
  for (const Form form : kForms) {
    const MetadataStep step = example(form);
    const std::vector<std::vector<std::byte>> inputs = input_bytes(step.problem, step.engine);
    std::vector<const void*> addresses;
    for (const std::vector<std::byte>& input : inputs) {
      addresses.push_back(input.data());
    }
    REQUIRE(inputs.size() == inputs_of(step.problem).size());
    CHECK(input_bytes(step.problem, engine_at(step.problem, addresses)) == inputs);
  }
}

TEST_CASE("metadata: every fault is caught by its proof and named as it is") {
  CHECK(metadata_faults().size() >= 12);
  std::set<std::string> keys, named;
  const std::vector<TellingMetadata> steps = telling_metadata();
  for (const MetadataFaultDoc& doc : metadata_faults()) {
    const SelfTestRow row = hunt_metadata(doc, steps);
    CAPTURE(row.fault);
    CAPTURE(row.case_id);
    CAPTURE(row.hypothesis);
    CHECK(row.fault == doc.fault);
    CHECK(row.caught);
    CHECK(row.named_right);
    CHECK_FALSE(row.hypothesis.empty());
    CHECK_FALSE(doc.meaning.empty());
    CHECK_FALSE(doc.source.empty());
    CHECK(keys.insert(std::string(doc.fault)).second);
    named.insert(row.hypothesis);
    CHECK(make_mutant(std::string(doc.fault))->name() == "mutant:" + std::string(doc.fault));
  }
  std::set<std::string> hypotheses;
  for (const HypothesisDoc& doc : metadata_hypotheses()) {
    CAPTURE(std::string(doc.key));
    CHECK_MESSAGE(named.contains(std::string(doc.key)), "no fault stands for this hypothesis");
    CHECK(hypotheses.insert(std::string(doc.key)).second);
    CHECK_FALSE(doc.meaning.empty());
  }
}

TEST_CASE("metadata: a fault that is not told is a miss, and a right builder none") {
  MetadataFaultDoc doc = metadata_faults().front();
  CHECK_FALSE(hunt_metadata(doc, {}).caught);
  doc.hypothesis = "wrong-count";
  CHECK(hunt_metadata(doc, telling_metadata()).caught);
  CHECK_FALSE(hunt_metadata(doc, telling_metadata()).named_right);
  SelfTestReport report;
  try_right_metadata(telling_metadata(), report);
  CHECK(report.correct_cases >= std::ssize(telling_metadata()));
  CHECK(report.correct_passed == report.correct_cases);
  CHECK(report.false_alarms == 0);
  for (const std::string& message : report.alarm_messages) {
    MESSAGE(message);
  }
}

TEST_CASE("metadata: backend cpu passes every telling step at every level") {
  const std::unique_ptr<Backend> cpu = make_cpu_backend({1, ""});
  const std::unique_ptr<Memory> memory = make_host_memory();
  std::set<Form> forms;
  for (const TellingMetadata& telling : telling_metadata()) {
    CAPTURE(telling.id);
    REQUIRE(metadata_support(*cpu, telling.step.problem, facts_of(Space::kHost)).yes);
    const Verdict verdict = verify_metadata(telling.step, *cpu->metadata(), *memory, true);
    CHECK(verdict.message == "");
    CHECK(verdict.status == Status::kPassed);
    CHECK(verdict.passed == std::vector<Level>{Level::kExact, Level::kMemory, Level::kRelations});
    CHECK(verdict.compared > 0);
    forms.insert(telling.step.problem.form);
  }
  CHECK(forms.size() == std::size(kForms));
}

TEST_CASE("metadata: a mutant makes nothing else, and no other backend makes metadata") {
  const std::unique_ptr<Backend> mutant = make_mutant("metadata-frozen-flag");
  CHECK_FALSE(mutant->supports({}, facts_of(Space::kHost)).yes);
  CHECK(
      metadata_support(*mutant, example(Form::kChunked).problem, facts_of(Space::kHost)).why_not ==
      "a fault of form kernel");
  CHECK(metadata_support(*make_mutant("no-op"), {}, facts_of(Space::kHost)).why_not ==
        "mutant:no-op makes no metadata");
}

TEST_CASE("metadata: what a later step alone shows is seen by relations alone") {
  const std::unique_ptr<Memory> memory = make_host_memory();
  const std::unique_ptr<Backend> frozen = make_mutant("metadata-frozen-active-count");
  const MetadataStep step = example(Form::kKernel);
  CHECK(verify_metadata(step, *frozen->metadata(), *memory, false).status == Status::kPassed);
  const std::unique_ptr<Backend> again = make_mutant("metadata-frozen-active-count");
  const Verdict verdict = verify_metadata(step, *again->metadata(), *memory, true);
  REQUIRE(verdict.failure);
  CHECK(verdict.failure->level == Level::kRelations);
  CHECK(verdict.message.find("replayed without an adapter: active[0]: expected 0, got 3") !=
        std::string::npos);
}

TEST_CASE("metadata: entries of the table that no row names are not read, and reading is seen") {
  const std::unique_ptr<Memory> memory = make_host_memory();
  for (const Form form : kForms) {
    CAPTURE(std::string(name(form)));
    MetadataStep step = example(form);
    const Arrays before = agreed(step);
    step.engine.slot_of_request[2] = 0x7FFFFFFF;
    step.engine.slot_of_request[3] = -9;
    CHECK(agreed(step) == before);
    // A builder that finds a slot which is none, where no row names the request.
    const Observed reads([](const MetadataProblem& problem, const ArrayOperands& operands) {
      for (const std::int32_t slot : engine_at(problem, operands.inputs).slot_of_request) {
        if (slot >= problem.slots) {
          spoil_first_entry(problem, operands);
        }
      }
    });
    CHECK(verify_metadata(example(form), reads, *memory, false).status == Status::kFailed);
  }
}

TEST_CASE("metadata: a launch over the remains of another step is right") {
  const std::unique_ptr<Memory> memory = make_host_memory();
  const std::unique_ptr<Backend> cpu = make_cpu_backend({1, ""});
  for (const Form form : kForms) {
    CAPTURE(std::string(name(form)));
    const MetadataStep step = drawn_step(drawn_case(form, 3));
    ArrayBuffers buffers(*memory, shapes_of(inputs_of(step.problem)),
                         shapes_of(outputs_of(step.problem)));
    const auto launch = [&](const EngineStep& engine) {
      buffers.put_inputs(input_bytes(step.problem, engine));
      cpu->metadata()->launch(step.problem, buffers.operands(), Stream{});
      CHECK(wrong_metadata(step.problem, engine, buffers.outputs()) == "");
      CHECK(buffers.damage() == "");
      CHECK(buffers.changed_input() == "");
    };
    for (const OtherStep& other : other_steps(step)) {
      CAPTURE(std::string(other.name));
      launch(other.engine);
      launch(step.engine);
    }
  }
}

TEST_CASE("metadata: addresses are aligned to one entry alone in one of the launches") {
  const std::unique_ptr<Memory> memory = make_host_memory();
  const Observed wide([](const MetadataProblem& problem, const ArrayOperands& operands) {
    if (std::bit_cast<std::uintptr_t>(operands.outputs.front()) % 16 != 0) {
      spoil_first_entry(problem, operands);
    }
  });
  const Verdict verdict = verify_metadata(example(Form::kKernel), wide, *memory, false);
  REQUIRE(verdict.failure);
  CHECK(verdict.failure->what == "with shifted arrays: adapter_of_token[0]: expected 2, got -5");
}

TEST_CASE("metadata: a step of which nothing is promised passes by guards and inputs alone") {
  const std::unique_ptr<Memory> memory = make_host_memory();
  const std::unique_ptr<Backend> cpu = make_cpu_backend({1, ""});
  MetadataStep step = example(Form::kSampler);
  step.problem.samples = 0;
  step.engine.request_of_sample.clear();
  const Verdict verdict = verify_metadata(step, *cpu->metadata(), *memory, true);
  CHECK(verdict.status == Status::kPassed);
  CHECK(verdict.passed == std::vector<Level>{Level::kMemory});
  MetadataStep empty = example(Form::kEmbedding);
  empty.problem.tokens = 0;
  empty.engine.request_of_token.clear();
  const std::unique_ptr<Backend> past = make_metadata_mutant("metadata-row-too-many");
  CHECK(verify_metadata(empty, *past->metadata(), *memory, true).status == Status::kFailed);
}

TEST_CASE("metadata: what a launch left is told by its first wrong entry") {
  for (const Form form : kForms) {
    const MetadataStep step = example(form);
    const Arrays right = agreed(step);
    CHECK(wrong_metadata(step.problem, step.engine, bytes_of_arrays(step.problem, right)) == "");
  }
  const MetadataStep kernel = example(Form::kKernel);
  Arrays wrong = agreed(kernel);
  wrong[5] = {2};
  wrong[4][2] = 6;
  CHECK(wrong_metadata(kernel.problem, kernel.engine, bytes_of_arrays(kernel.problem, wrong)) ==
        "starts[2]: expected 5, got 6");
  const MetadataStep lists = example(Form::kAlign);
  wrong = agreed(lists);
  std::swap(wrong[0][0], wrong[0][16]);
  CHECK(wrong_metadata(lists.problem, lists.engine, bytes_of_arrays(lists.problem, wrong)) ==
        "pair_order[0]: expected 10, got 7");
  const MetadataStep chunked = example(Form::kChunked);
  wrong = agreed(chunked);
  wrong[4][2] = bits(2.0F);
  CHECK(wrong_metadata(chunked.problem, chunked.engine, bytes_of_arrays(chunked.problem, wrong)) ==
        "scale[2]: expected 0.5, got 2");
}

TEST_CASE("metadata: the work of the example, counted by hand") {
  // Read of every form but sampler: 8 rows and 4 requests of the table, 4 bytes each.
  const auto work = [](Form form, bool idle_segments = false) {
    return count_metadata_work(example(form, idle_segments));
  };
  CHECK(work(Form::kKernel).written_bytes == 4 * (8 + 8 + 4 + 4 + 5 + 1 + 1));
  CHECK(work(Form::kKernel).bytes == 4 * (8 + 4) + 124);
  CHECK(work(Form::kKernel).rows == 7);
  CHECK(work(Form::kKernel).flops == 0);
  CHECK(work(Form::kKernel).weight_bytes == 0);
  CHECK(work(Form::kPrefill).written_bytes == 4 * (3 * 6 + 4));
  CHECK(work(Form::kPrefill).bytes == 4 * (8 + 4) + 88);
  CHECK(work(Form::kSampler).written_bytes == 3 * (4 + 8));
  CHECK(work(Form::kSampler).bytes == 4 * (3 + 3) + 36);
  CHECK(work(Form::kSampler).rows == 3);
  CHECK(work(Form::kEmbedding).written_bytes == 8 * (8 + 8));
  CHECK(work(Form::kEmbedding).bytes == 4 * (8 + 4) + 128);
  CHECK(work(Form::kChunked).written_bytes == 4 * (8 + 4 + 2 + 3 + 3 + 1 + 1));
  CHECK(work(Form::kChunked).bytes == 4 * (8 + 4 + 3 + 3) + 88);
  CHECK(work(Form::kChunked, true).written_bytes == 4 * (8 + 5 + 3 + 4 + 4 + 1 + 1));
  // Five rows have an adapter, and two slots have rows.
  CHECK(work(Form::kAlign).written_bytes == 4 * (2 * (80 + 5 + 1) + 4 + 4));
  CHECK(work(Form::kAlign).bytes == 4 * (8 + 4 + 5 * 2) + 720);
  MetadataStep without = example(Form::kKernel);
  std::fill(without.engine.request_of_token.begin(), without.engine.request_of_token.end(), -1);
  CHECK(count_metadata_work(without).bytes == 4 * 8 + 4 * (4 + 4 + 5 + 1 + 1));
  CHECK(count_metadata_work(without).rows == 0);
}
