#include "verify/layer_faults.h"

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "ops/backends.h"
#include "support/plain_backend.h"
#include "verify/layer_proof.h"
#include "verify/mutant_hunt.h"

using namespace lora_bench;

namespace {

// Rounds the sums over K of a shard to bf16, and says so.
class NarrowSums final : public PlainBackend {
 public:
  NarrowSums(Faults faults, std::int64_t partials)
      : PlainBackend(std::move(faults)), partials_(partials) {}
  [[nodiscard]] Numerics numerics(const Problem& problem) const override {
    Numerics numerics = PlainBackend::numerics(problem);
    numerics.partial = Dtype::kBf16;
    numerics.partials = partials_;
    return numerics;
  }

 private:
  std::int64_t partials_;
};

}  // namespace

TEST_CASE("every fault of a layer is caught by its proof and named as it is") {
  CHECK(layer_faults().size() >= 20);
  std::set<std::string> keys;
  for (const LayerFaultDoc& doc : layer_faults()) {
    const SelfTestRow row = hunt_layer(doc, telling_layers());
    CAPTURE(row.fault);
    CAPTURE(row.case_id);
    CAPTURE(row.hypothesis);
    CHECK(row.caught);
    CHECK(row.named_right);
    CHECK(keys.insert(std::string(doc.key)).second);
  }
}

TEST_CASE("right layers raise no alarm, whatever their slots held before") {
  SelfTestReport report;
  try_right_layers(telling_layers(), report);
  CHECK(report.correct_cases > 100);
  CHECK(report.false_alarms == 0);
  for (const std::string& message : report.alarm_messages) {
    MESSAGE(message);
  }
}

TEST_CASE("a fault of the engine's surroundings is named by what it does to the layer") {
  const std::unique_ptr<Backend> cpu = make_cpu_backend({1, ""});
  const std::unique_ptr<Memory> memory = make_host_memory();
  const auto hypothesis = [&](const char* id, const Backend& base, const Backend& lora) {
    for (const TellingLayer& layer : telling_layers()) {
      if (layer.id == id) {
        const Verdict verdict = verify_layer(layer.problem, base, lora, *memory, {});
        REQUIRE(verdict.failure);
        return verdict.failure->hypothesis;
      }
    }
    return std::string("no such layer");
  };
  CHECK(hypothesis("row-tp2", *cpu, *make_mutant("scale-missing")) == "scale-forgotten");
  CHECK(hypothesis("merged_qkv-tp4", *cpu, *make_mutant("no-op")) == "delta-lost");
  std::set<std::string> forms;
  for (const TellingLayer& layer : telling_layers()) {
    // Terms of a sum that are so much too large are rounded by more than what is right may be off;
    // A that is looked up is no backend's.
    const bool summed = description_of(layer.problem.layer.kind).y == Exchange::kReduce;
    if (layer.problem.lora.has_scaled_weights() && layer.problem.layer.tp == 2 && !summed) {
      CAPTURE(layer.id);
      forms.emplace(name(layer.problem.lora.weights_scale));
      CHECK(hypothesis(layer.id.c_str(), *cpu, *make_mutant("weight-scale-forgotten")) ==
            "weight-scales-forgotten");
    }
  }
  CHECK(forms.size() == 3);
}

TEST_CASE("a wrong layer is told whatever its shards are, those of unlike length too") {
  const std::unique_ptr<Backend> cpu = make_cpu_backend({1, ""});
  const std::unique_ptr<Memory> memory = make_host_memory();
  const std::unique_ptr<Backend> nothing = make_mutant("no-op");
  for (const TellingLayer& layer : telling_layers()) {
    CAPTURE(layer.id);
    const Verdict verdict = verify_layer(layer.problem, *cpu, *nothing, *memory, {});
    CHECK(verdict.status == Status::kFailed);
    REQUIRE(verdict.failure);
    CHECK(verdict.failure->hypothesis == "delta-lost");
  }
}

TEST_CASE("every small layer is proved bit for bit, and so is caught what no bound can see") {
  const std::unique_ptr<Backend> cpu = make_cpu_backend({1, ""});
  const std::unique_ptr<Memory> memory = make_host_memory();
  for (const TellingLayer& layer : telling_layers()) {
    CAPTURE(layer.id);
    const Verdict verdict = verify_layer(layer.problem, *cpu, *cpu, *memory, {});
    if (layer.problem.caps()) {  // whose roundings nobody models
      CHECK(verdict.passed == std::vector<Level>{Level::kBounded, Level::kMemory});
      continue;
    }
    CHECK(verdict.passed == std::vector<Level>{Level::kExact, Level::kBounded, Level::kMemory});
    if (layer.problem.lora.bias) {
      continue;  // beside it the last bits of a scale need not show
    }
    LayerProblem in_fp32 = layer.problem;  // where the last bits of a scale show in y
    in_fp32.lora.dtype = OperandDtypes(Dtype::kFp32, in_fp32.lora.dtype[Role::kH]);
    if (layer.problem.lora.has_scaled_weights()) {
      in_fp32.lora.dtype[Role::kA] = layer.problem.lora.dtype[Role::kA];
      in_fp32.lora.dtype[Role::kB] = layer.problem.lora.dtype[Role::kB];
    }
    const Verdict last_bits =
        verify_layer(in_fp32, *cpu, *make_mutant("scale-last-bits"), *memory, {});
    REQUIRE(last_bits.failure);
    CHECK(last_bits.failure->level == Level::kExact);
    CHECK(last_bits.message.starts_with("exact: "));
  }
}

TEST_CASE(
    "sums kept in a narrow type are right in every layer where that is declared, not elsewhere") {
  const NarrowSums once({.bf16_sum = true}, 1);
  const NarrowSums in_two({.bf16_partials = true}, 2);
  const PlainBackend undeclared({.bf16_sum = true});
  const std::unique_ptr<Backend> cpu = make_cpu_backend({1, ""});
  const std::unique_ptr<Memory> memory = make_host_memory();
  for (const TellingLayer& layer : telling_layers()) {
    if (layer.problem.lora.has_scaled_weights()) {
      continue;  // a plain backend reads no scales
    }
    CAPTURE(layer.id);
    for (const Backend* lora : {&once, &in_two}) {
      const Verdict verdict = verify_layer(layer.problem, *cpu, *lora, *memory, {});
      CHECK(verdict.status == Status::kPassed);
      // The exact level models no rounding of a sum.
      CHECK(verdict.passed == std::vector<Level>{Level::kBounded, Level::kMemory});
    }
    const bool sums = !description_of(layer.problem.layer.kind).looks_up;
    CHECK(verify_layer(layer.problem, *cpu, undeclared, *memory, {}).status ==
          (sums ? Status::kFailed : Status::kPassed));
  }
}

TEST_CASE("docs/layers.md lists every fault as the code has it") {
  std::ifstream file(LORA_BENCH_SOURCE_DIR "/docs/layers.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  for (const LayerFaultDoc& doc : layer_faults()) {
    const std::string line = "| `" + std::string(doc.key) + "` | " + std::string(doc.meaning) +
                             " | " + std::string(doc.source) + " |\n";
    CHECK_MESSAGE(page.find(line) != std::string::npos, line);
  }
}
