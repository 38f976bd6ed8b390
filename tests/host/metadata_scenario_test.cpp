#include <doctest/doctest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "layers/layer_problem.h"
#include "ops/backends.h"
#include "scenario/scenario.h"
#include "support/draws.h"
#include "verify/metadata_proof.h"

using namespace lora_bench;

namespace {

const std::string kStep = "op: metadata\nbatch: {decode: 5, prefill: [9, 4]}\nadapters.slots: 4\n";

Scenario parsed(const std::string& text) { return parse_scenario(text, "test.yaml", {}); }

std::string refusal(const std::string& text) {
  try {
    static_cast<void>(parsed(text));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

// What is said of a line behind the fields of a step.
std::string refused(const std::string& line) { return refusal(kStep + line + "\n"); }

}  // namespace

TEST_CASE("metadata: a batch and slots are a case, with every default and no layer") {
  const Case spec = parsed(kStep).cases.at(0);
  CHECK(spec.op == Op::kMetadata);
  CHECK(spec.metadata == MetadataSpec{});
  CHECK(spec.metadata.form == Form::kKernel);
  CHECK(spec.metadata.samples == 1);
  CHECK(spec.plan.largest_chunk == 16);
  CHECK_FALSE(spec.plan.idle_segments);
  CHECK(spec.layer.widths.empty());
  const CaseStep step = step_of(spec);
  REQUIRE(step.metadata);
  CHECK_FALSE(step.layer);
  CHECK(step.metadata->problem.tokens == 18);
  CHECK(step.metadata->problem.samples == 7);
  CHECK(step.metadata->problem.requests == 14);
  CHECK_FALSE(step_of(parsed("layer: {in: 8, out: 8}\nbatch.decode: 1\n").cases.at(0)).metadata);
}

TEST_CASE("metadata: its fields are refused with any other op") {
  const std::vector<std::string> fields{
      "form: chunked",          "metadata.samples: 2",          "metadata.requests: 90",
      "metadata.vocabulary: 5", "metadata.extra_vocabulary: 5", "metadata.block: 64"};
  for (const std::string& field : fields) {
    const std::string path = field.substr(0, field.find(':'));
    for (const std::string op : {"linear", "shrink", "embedding", "layer"}) {
      CAPTURE(field);
      CAPTURE(op);
      const std::string text = "op: " + op + "\nlayer: {in: 8, out: 8}\nbatch.decode: 2\n" +
                               (op == "layer" ? "layer.kind: row\n" : "") + field + "\n";
      CHECK(refusal(text).find("'" + path + "' with op " + op + "; allowed: op metadata") !=
            std::string::npos);
    }
    CHECK(refused(field) == "accepted");
  }
}

TEST_CASE("metadata: what belongs to products is refused, what belongs to a batch is not") {
  const std::vector<std::string> products{
      "dtype: fp16",           "intermediate: fp32",    "scale_at: expand", "add_inputs: false",
      "model: llama-3.1-8b",   "layer.in: 8",           "layer.out: 8",     "layer.x_stride: 16",
      "layer.y_stride: 16",    "layer.offset_start: 1", "layer.kind: row",  "layer.tp: 2",
      "adapters.max_rank: 64", "adapters.bias: true",   "plan.max_slots: 4"};
  for (const std::string& field : products) {
    CAPTURE(field);
    const std::string path = field.substr(0, field.find(':'));
    CHECK(refused(field).find("'" + path + "' with op metadata; allowed: ") != std::string::npos);
  }
  CHECK(
      refused("dtype: fp16") ==
      "test.yaml:4:8: 'dtype' with op metadata; allowed: another op: metadata multiplies nothing");
  for (const char* field :
       {"adapters.rank: [8, 0]", "adapters.scale: [1, 2]", "adapters.active: 2", "skew: distinct",
        "no_adapter: 50%", "order: sorted", "plan.max_tokens: 64", "seed: 3", "batch.decode: 0",
        "measure.cache: cold", "verify.relations: true"}) {
    CAPTURE(std::string(field));
    const std::string line(field);
    const std::string step = line.starts_with("batch") ? "op: metadata\n" : kStep;
    CHECK(refusal(step + line + "\n") == "accepted");
  }
}

TEST_CASE("metadata: a table that not every sequence has a place in is refused") {
  CHECK(
      refused("metadata.requests: 6") ==
      "test.yaml:4:20: 'metadata.requests' is 6, but each of 7 sequences is one; allowed: 0, or at "
      "least the sequences");
  CHECK(refused("metadata.requests: 7") == "accepted");
  CHECK(refused("metadata.requests: 0") == "accepted");
}

TEST_CASE("metadata: form align goes with experts, and other forms without") {
  const std::string experts = "experts: {count: 8, top_k: 2}\n";
  CHECK(refused("form: align\n" + experts) == "accepted");
  CHECK(refused("form: align\nmetadata.block: 64\n" + experts + "routing: {zipf: 1.0}") ==
        "accepted");
  CHECK(refused("form: align") ==
        "test.yaml:4:7: form align without experts; allowed: experts.count, or another form");
  CHECK(
      refused("form: chunked\n" + experts).find("form chunked with experts; allowed: form align") !=
      std::string::npos);
  for (const char* field :
       {"part: w2", "weight_at: none", "renormalise: false", "scaling: 2", "missing: 50%"}) {
    CAPTURE(std::string(field));
    CHECK(refused("form: align\n" + experts + "experts." + field)
              .find("with op metadata; allowed: another op: metadata multiplies nothing") !=
          std::string::npos);
  }
  const std::string many = "op: metadata\nform: align\nadapters.slots: 8192\n" + experts;
  CHECK(refusal(many + "batch.decode: 4000\n") == "accepted");
  CHECK(refusal(many + "batch.decode: 4096\n")
            .find("8192 slots with a list of 8192 pairs each; allowed: at most 67108864 entries of "
                  "all lists, padding included") != std::string::npos);
  CHECK(refused("metadata.block: 8").find("allowed: 16, 32, 64, 128") != std::string::npos);
}

TEST_CASE("metadata: values out of range are refused") {
  CHECK(refused("form: padded")
            .find("allowed: kernel, prefill, sampler, embedding, chunked, align") !=
        std::string::npos);
  CHECK(refused("plan.largest_chunk: 48").find("allowed: 16, 32, 64, 128") != std::string::npos);
  CHECK(refused("metadata.samples: 65") != "accepted");
  CHECK(refused("metadata.vocabulary: 0") != "accepted");
}

TEST_CASE("metadata: the text of a case loads again to the same case") {
  const std::vector<std::string> changes{"",
                                         "form: prefill",
                                         "form: chunked",
                                         "metadata: {samples: 3, requests: 40}",
                                         "metadata.samples: 0",
                                         "metadata: {vocabulary: 9, extra_vocabulary: 0}",
                                         "plan.largest_chunk: 128",
                                         "metadata.block: 64",
                                         "form: align\nexperts: {count: 8, top_k: 2}",
                                         "plan.idle_segments: true",
                                         "plan.max_tokens: 64",
                                         "adapters.rank: [8, 0, 16]"};
  std::set<std::uint64_t> hashes;
  for (const std::string& change : changes) {
    const Case spec = parsed(kStep + change + "\n").cases.at(0);
    const std::string text = scenario_text(spec);
    CAPTURE(text);
    const Case again = parsed(text).cases.at(0);
    CHECK(again.metadata == spec.metadata);
    CHECK(content_hash({again}) == content_hash({spec}));
    CHECK_MESSAGE(hashes.insert(content_hash({spec})).second, "no field changes the hash");
    CHECK(text.find("dtype") == std::string::npos);
  }
}

TEST_CASE("metadata: forms of a sweep are points with ids of their own") {
  const Scenario scenario =
      parsed(kStep + "sweep: {form: [kernel, prefill, sampler, embedding, chunked]}\n");
  std::vector<std::string> ids;
  for (const Case& spec : scenario.cases) {
    ids.push_back(spec.id);
  }
  CHECK(ids == std::vector<std::string>{"kernel", "prefill", "sampler", "embedding", "chunked"});
}

TEST_CASE("metadata: the shipped suite passes, has every form, and catches every fault") {
  const std::unique_ptr<Backend> cpu = make_cpu_backend({1, ""});
  const std::unique_ptr<Memory> memory = make_host_memory();
  std::vector<TellingMetadata> steps;
  std::set<Form> forms;
  std::set<std::int64_t> chunks;
  std::size_t idle = 0, none = 0;
  for (const char* file : {"metadata.yaml", "metadata-forms.yaml", "metadata-align.yaml"}) {
    for (const Case& spec :
         load_scenario(LORA_BENCH_SOURCE_DIR "/scenarios/verify/" + std::string(file), {}).cases) {
      CAPTURE(spec.id);
      CHECK(spec.op == Op::kMetadata);
      CHECK_FALSE(spec.measure.enabled);
      steps.push_back({spec.id, *step_of(spec).metadata});
      const MetadataStep& step = steps.back().step;
      forms.insert(step.problem.form);
      chunks.insert(step.problem.chunk);
      idle += step.problem.idle_segments ? 1 : 0;
      none += step.problem.tokens == 0 ? 1 : 0;
      const bool relations = step.problem.tokens < 1000 || !test::kSanitized;
      const Verdict verdict = verify_metadata(step, *cpu->metadata(), *memory, relations);
      CHECK(verdict.message == "");
      CHECK(verdict.status == Status::kPassed);
    }
  }
  CHECK(forms.size() == EnumNames<Form>::kNames.size());
  CHECK(chunks == std::set<std::int64_t>{16, 32, 64, 128});
  CHECK(idle >= 4);
  CHECK(none == 6);
  for (const MetadataFaultDoc& doc : metadata_faults()) {
    CAPTURE(std::string(doc.fault));
    CHECK(hunt_metadata(doc, steps).caught);
  }
}
