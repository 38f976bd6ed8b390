#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "device/facts.h"
#include "layers/layer_problem.h"
#include "measure/fake_clock.h"
#include "measure/quantise_time.h"
#include "ops/backends.h"
#include "reference/quantise.h"
#include "run/describe.h"
#include "scenario/scenario.h"
#include "support/short_measure.h"
#include "verify/metadata_proof.h"
#include "verify/quantise_proof.h"

using namespace lora_bench;

namespace {

Case parsed(const std::string& text) {
  return parse_scenario("op: quantise\n" + text, "test.yaml", {}).cases.at(0);
}

QuantiseProblem problem_of(const std::string& text) {
  return step_of(parsed(text)).quantise->problem;
}

// Of one row by its own scale.
reference::Quantised quantised(const std::vector<float>& x, reference::Quantiser asked) {
  asked.from = reference::Number::kFp32;
  asked.rows = 1;
  asked.columns = asked.stride = asked.group = static_cast<std::int64_t>(x.size());
  asked.x = x.data();
  return quantise(asked);
}

std::unique_ptr<Backend> mutant(const QuantiseFault& fault) {
  return make_quantise_mutant(fault.fault);
}

// Quantises what is new, and writes again what it made when the first numbers of x are those of the
// launch before.
class Peeking final : public Quantiser {
 public:
  [[nodiscard]] Support supports(const QuantiseProblem&, const DeviceFacts&) const override {
    return {};
  }
  void launch(const QuantiseProblem& problem, const ArrayOperands& operands,
              Stream stream) const override {
    const ArrayShapes outputs = outputs_of(problem);
    const std::string seen(static_cast<const char*>(operands.inputs[0]), 16);
    const bool is_new = seen != seen_;
    if (is_new) {
      cpu_->launch(problem, operands, stream);
      kept_.clear();
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      auto* const at = static_cast<char*>(operands.outputs[i]);
      if (is_new) {
        kept_.emplace_back(at, static_cast<std::size_t>(outputs[i].bytes()));
      } else {
        std::memcpy(at, kept_[i].data(), kept_[i].size());
      }
    }
    seen_ = seen;
  }

 private:
  std::unique_ptr<Quantiser> cpu_ = make_cpu_quantiser();
  mutable std::string seen_;
  mutable std::vector<std::string> kept_;
};

Measurement timed(const QuantiseStep& step, const Quantiser& quantiser,
                  const std::vector<QuantiseArrays>& inputs) {
  FakeClock clock([](int, std::int64_t) { return 1e-5; });
  const std::unique_ptr<Memory> memory = make_host_memory();
  const MeasureSettings settings = test::short_measure(CacheMode::kCold);
  DeviceFacts facts;
  facts.cache_bytes = 1 << 20;
  return measure_quantise(
      {.step = step,
       .settings = settings,
       .quantiser = quantiser,
       .steps = inputs,
       .check =
           [&](std::size_t at, const QuantiseArrays& outputs) {
             return compare_codes(step.problem, promised_codes(step.problem, inputs[at]), outputs)
                 .first;
           },
       .stop = {},
       .alone = true},
      *memory, clock, facts);
}

}  // namespace

TEST_CASE("quantise: x alone is a case, of e4m3 by tokens where nothing is said") {
  const Case spec = parsed("layer.in: 48\nbatch.decode: 5\n");
  CHECK(spec.quantiser == QuantiserSpec{});
  CHECK(spec.layer.widths.empty());
  const QuantiseProblem problem = step_of(spec).quantise->problem;
  CHECK(problem.rows == 5);
  CHECK(problem.columns == 48);
  CHECK(problem.stride == 48);
  CHECK(problem.from == Dtype::kBf16);
  CHECK(problem.to == Dtype::kE4m3);
  CHECK(problem.scale_count() == 5);
  CHECK(problem.least_scale == 1.0F / (512 * 448));
  CHECK(outputs_of(problem).size() == 2);
  CHECK(inputs_of(problem).size() == 1);
  // A layer of a model is its input alone.
  CHECK(problem_of("model: llama-3.1-8b\nlayers: down\nbatch.decode: 1\n").columns == 14336);
}

TEST_CASE("quantise: scales are as many as their form says, and inputs where they are given") {
  const std::string rest = "layer: {in: 300, x_stride: 320}\nbatch.decode: 7\n";
  CHECK(problem_of("activations.scale: tensor\n" + rest).scale_count() == 1);
  CHECK(problem_of("activations: {scale: block, group: 128}\n" + rest).scale_count() == 21);
  const QuantiseProblem given = problem_of("quantiser.scales: given\n" + rest);
  CHECK(inputs_of(given).size() == 2);
  CHECK(outputs_of(given).size() == 1);
  CHECK(count_quantise_work(given).bytes == 7 * 300 * 2 + 7 * 4 + 7 * 300);
  CHECK(count_quantise_work(given).written_bytes == 7 * 300);
}

TEST_CASE("quantise: the text of a case is a scenario of the same case") {
  const Case spec = parsed(
      "layer: {in: 48, x_stride: 56}\nbatch.decode: 5\ndtype: fp16\n"
      "activations: {dtype: e5m2, scale: block, group: 16}\n"
      "quantiser: {convert: multiply, least_amax: 0.5, least_scale: 0.001, power_of_two: true}\n");
  const std::string text = scenario_text(spec);
  const Case again = parse_scenario(text, "test.yaml", {}).cases.at(0);
  CHECK(again.quantiser == spec.quantiser);
  CHECK(step_of(again).quantise->problem == step_of(spec).quantise->problem);
}

TEST_CASE("quantise: a row says nothing of adapters, which a quantiser does not know") {
  const Case spec = parsed("layer.in: 48\nbatch.decode: 5\n");
  const Row row = describe_case(spec, step_of(spec), "cpu");
  CHECK(row.step.tokens == 5);
  CHECK(row.step.slots == 0);
  CHECK(row.step.active == 0);
  CHECK(row.step.rank == 0);
  for (const std::string& text : {row.step.ranks, row.step.skew, row.step.order}) {
    CHECK(text == "");
  }
  CHECK(describe_spec(spec, "cpu").step.rank == 0);
}

TEST_CASE("quantise: the list of backends says who does it") {
  for (const BackendEntry& entry : backend_registry()) {
    CAPTURE(entry.name);
    CHECK((entry.summary.find("quantise") != std::string::npos) ==
          (entry.name == "cpu" || entry.name == "auto"));
  }
}

TEST_CASE("reference: numbers by hand are the codes that they should be") {
  const reference::Quantised e4m3 = quantised({448, -1, 1.0625F, 1.1875F, 0, -0.0F, 0x1p-10F}, {});
  CHECK(e4m3.scales.at(0) == 1);
  // Ties go to the even code: 17/16 to 1, 19/16 to 1.25; half the least number to 0.
  CHECK(e4m3.codes == std::vector<std::uint8_t>{0x7E, 0xB8, 0x38, 0x3A, 0x00, 0x80, 0x00});
  const reference::Quantised e5m2 =
      quantised({-57344, 1.125F, 1.375F}, {.rule = {.to = reference::Number::kE5m2}});
  CHECK(e5m2.scales.at(0) == 1);
  CHECK(e5m2.codes == std::vector<std::uint8_t>{0xFB, 0x3C, 0x3E});
  CHECK(quantised({3}, {}).scales.at(0) == 3.0F / 448);
  CHECK(quantised({3}, {.rule = {.power_of_two = true}}).scales.at(0) == 0x1p-7F);
  CHECK(quantised({3.5F}, {.rule = {.power_of_two = true}}).scales.at(0) == 0x1p-7F);
  CHECK(quantised({0}, {.rule = {.least_scale = 0.25}}).scales.at(0) == 0.25F);
  CHECK(quantised({0}, {.rule = {.least_amax = 448}}).scales.at(0) == 1.0F);
  // What a given scale leaves too large is held.
  const float two = 2;
  CHECK(quantised({2000, -2000, 2}, {.rule = {}, .given = &two}).codes ==
        std::vector<std::uint8_t>{0x7E, 0xFE, 0x38});
}

TEST_CASE("quantise: a division and a product differ in numbers that every dtype is drawn") {
  for (const Dtype from : {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32}) {
    for (const Dtype to : {Dtype::kE4m3, Dtype::kE5m2}) {
      CAPTURE(name(from));
      CAPTURE(name(to));
      QuantiseProblem problem = problem_of("layer.in: 64\nbatch.decode: 16\n");
      problem.from = from;
      problem.to = to;
      const QuantiseArrays inputs = draw_quantise_inputs(problem, 3, XGaps::kNan);
      const QuantiseArrays divided = promised_codes(problem, inputs);
      problem.convert = Convert::kMultiply;
      CHECK(promised_codes(problem, inputs)[0] != divided[0]);
    }
  }
}

TEST_CASE("quantise: every fault is caught and named, and none is found in what is right") {
  const std::vector<TellingQuantise> steps = telling_quantise();
  for (const QuantiseFault& fault : quantise_faults()) {
    CAPTURE(fault.fault);
    const SelfTestRow row = hunt_quantise(fault, steps);
    CHECK(row.caught);
    CHECK(row.hypothesis == fault.fault);
  }
  for (const TellingQuantise& telling : steps) {
    CAPTURE(telling.id);
    const QuantiseProblem& problem = telling.step.problem;
    const QuantiseArrays inputs = draw_quantise_inputs(problem, 1, XGaps::kHuge);
    CHECK(quantised_with("none", problem, inputs, {}, {}) == promised_codes(problem, inputs));
    const Verdict verdict =
        verify_quantise(telling.step, *make_cpu_quantiser(), *make_host_memory(), true);
    CHECK(verdict.message == "");
    CHECK(verdict.compared > 10000);
  }
}

TEST_CASE("quantise: no fault has the name of another mutant") {
  std::set<std::string_view> names;
  for (const MutantDoc& doc : mutants()) {
    names.insert(doc.fault);
  }
  for (const MetadataFaultDoc& doc : metadata_faults()) {
    names.insert(doc.fault);
  }
  for (const QuantiseFault& fault : quantise_faults()) {
    CAPTURE(fault.fault);
    CHECK(names.insert(fault.fault).second);
  }
}

TEST_CASE("quantise: a failure names the first wrong code and its number") {
  const QuantiseStep step = telling_quantise().front().step;
  const std::unique_ptr<Backend> wrong = mutant(quantise_faults().front());
  const Verdict verdict = verify_quantise(step, *wrong->quantiser(), *make_host_memory(), false);
  REQUIRE(verdict.failure);
  CHECK(verdict.failure->what.find("with NaN in gaps: q[") == 0);
  CHECK(verdict.failure->what.find("expected 0x") != std::string::npos);
}

TEST_CASE("quantise: what timed launches leave out is found after timing") {
  const QuantiseStep step = telling_quantise().front().step;
  const QuantiseProblem& problem = step.problem;
  QuantiseArrays first = draw_quantise_inputs(problem, 1, XGaps::kNan);
  QuantiseArrays other = first;
  // One number far behind those that are looked at.
  store(problem.from, other[0].data(), 12 * problem.stride + 250, 3.0F);
  CHECK(timed(step, *make_cpu_quantiser(), {first, other}).check_message == "");
  const Measurement found = timed(step, Peeking(), {first, other});
  CHECK_FALSE(found.check_passed);
  CHECK(found.check_message.find("left by") != std::string::npos);
}

TEST_CASE("quantise: a kernel that looks at a sample of x and keeps its result fails") {
  const Verdict verdict =
      verify_quantise(telling_quantise().front().step, Peeking(), *make_host_memory(), true);
  REQUIRE(verdict.failure);
  CHECK(verdict.failure->level == Level::kRelations);
  CHECK(verdict.failure->what.find("replayed for one other number") == 0);
}

TEST_CASE("quantise: one number changed is one code changed, and one scale changed one scale") {
  for (const TellingQuantise& telling : telling_quantise()) {
    CAPTURE(telling.id);
    const QuantiseProblem& problem = telling.step.problem;
    const QuantiseArrays first = draw_quantise_inputs(problem, 1, XGaps::kNan);
    const QuantiseArrays promised = promised_codes(problem, first);
    const auto changed = [&](const QuantiseArrays& inputs, std::size_t array, std::size_t bytes) {
      const QuantiseArrays made = promised_codes(problem, inputs);
      std::size_t entries = 0;
      for (std::size_t at = 0; at < made[array].size(); at += bytes) {
        entries += std::memcmp(made[array].data() + at, promised[array].data() + at, bytes) != 0;
      }
      return entries;
    };
    CHECK(changed(with_one_number_changed(problem, first, 7), 0, 1) == 1);
    std::size_t shown = 0;
    for (std::uint64_t secret = 0; secret < 16; ++secret) {
      const QuantiseArrays other = with_one_scale_changed(problem, first, secret);
      if (!problem.scales_given) {
        CHECK(changed(other, 1, sizeof(float)) <= 1);
      }
      shown += changed(other, 0, 1) >= 1 ? 1 : 0;
    }
    CHECK(shown >= 12);  // a scale of zeros shows in no code, one that is held up in few
  }
}

TEST_CASE("quantise: the one group of a tensor is another kind in each draw") {
  QuantiseProblem problem =
      problem_of("activations.scale: tensor\nlayer.in: 640\nbatch.decode: 4\n");
  std::set<bool> powers, beyond, tiny;
  for (std::uint64_t draw = 0; draw < kQuantiseDraws; ++draw) {
    const QuantiseArrays inputs = draw_quantise_inputs(problem, 11 + draw, XGaps::kNan);
    float scale = 0;
    std::memcpy(&scale, promised_codes(problem, inputs)[1].data(), sizeof(scale));
    int exponent = 0;
    powers.insert(std::frexp(scale, &exponent) == 0.5F);
    beyond.insert(scale * 448 > 10000);
    tiny.insert(scale == problem.least_scale);
  }
  CHECK(powers.size() == 2);
  CHECK(beyond.size() == 2);
  CHECK(tiny.size() == 2);
}

namespace {

// What a quantiser may be wrong at, of a case; by the form of its scales where that matters.
std::vector<std::string> traits_of(const Case& spec) {
  const QuantiseProblem problem = step_of(spec).quantise->problem;
  const std::string form(name(spec.activations.scale));
  const bool block = spec.activations.scale == ActivationsScale::kBlock;
  const std::vector<std::pair<std::string, bool>> traits{
      {"more than 300 rows, " + form, problem.rows > 300},
      {"given scales of more than 37 rows, " + form, problem.scales_given && problem.rows > 37},
      {"least_amax, " + form, problem.least_amax > 0},
      {"power_of_two, " + form, problem.power_of_two},
      {"power_of_two in " + std::string(name(problem.to)), problem.power_of_two},
      {std::string(name(problem.to)) + " from " + std::string(name(problem.from)), true},
      {"more than 32 groups of a row", block && problem.scales.across > 32 && problem.rows > 1},
      {"a last group of one number", block && problem.columns % problem.scales.columns == 1},
      {"aligned rows of odd columns", problem.stride % 8 == 0 && problem.columns % 8 != 0},
  };
  std::vector<std::string> held;
  for (const auto& [trait, holds] : traits) {
    if (holds) {
      held.push_back(trait);
    }
  }
  return held;
}

}  // namespace

TEST_CASE("quantise: the shipped cases have every rule beside every form of scales") {
  std::set<std::string> met;
  for (const Case& spec :
       load_scenario(LORA_BENCH_SOURCE_DIR "/scenarios/verify/quantise.yaml", {}).cases) {
    for (const std::string& trait : traits_of(spec)) {
      met.insert(trait);
    }
  }
  std::vector<std::string> asked{"power_of_two in e4m3",
                                 "power_of_two in e5m2",
                                 "e4m3 from bf16",
                                 "e4m3 from fp16",
                                 "e4m3 from fp32",
                                 "e5m2 from bf16",
                                 "e5m2 from fp16",
                                 "e5m2 from fp32",
                                 "more than 32 groups of a row",
                                 "a last group of one number",
                                 "aligned rows of odd columns"};
  for (const char* form : {"tensor", "token", "block"}) {
    for (const char* trait : {"more than 300 rows, ", "given scales of more than 37 rows, ",
                              "least_amax, ", "power_of_two, "}) {
      asked.push_back(std::string(trait) + form);
    }
  }
  for (const std::string& trait : asked) {
    CAPTURE(trait);
    CHECK(met.contains(trait));
  }
}

// The kernels of x in 16 bits take a product with the inverse for a quotient and correct it once by
// its remainder (kernels/quantise/convert.cuh). Whether that is the IEEE quotient depends on the
// mantissas alone. One divisor in `step` is tried here; a step of 1, tried once, found none wrong.
TEST_CASE("quantise: a quotient of 8 or 11 bits that is corrected once is the IEEE quotient") {
  constexpr std::uint32_t kMantissas = 1U << 23U;
  struct Dividends {
    int bits = 0;
    std::uint32_t step = 0;
  };
  for (const Dividends& of : {Dividends{8, 255U}, Dividends{11, 2047U}}) {
    CAPTURE(of.bits);
    const std::uint32_t dividends = 1U << static_cast<unsigned>(of.bits - 1);
    std::int64_t wrong = 0, tried = 0;
    for (std::uint32_t mantissa = 0; mantissa < kMantissas; mantissa += of.step) {
      const float scale = std::ldexp(static_cast<float>(kMantissas + mantissa), -23);
      const float inverse = 1 / scale;
      for (std::uint32_t dividend = 0; dividend < dividends; ++dividend) {
        const float x = std::ldexp(static_cast<float>(dividends + dividend), 1 - of.bits);
        const float first = x * inverse;
        const float corrected = std::fma(std::fma(first, scale, -x), -inverse, first);
        wrong += corrected != x / scale ? 1 : 0;
        ++tried;
      }
    }
    CHECK(wrong == 0);
    CHECK(tried > 4000000);
  }
}
