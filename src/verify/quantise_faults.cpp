#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "verify/quantise_proof.h"

namespace lora_bench {
namespace {

// The rules of one quantiser: those that were asked for, one of which a fault changes.
struct Rules {
  bool multiplies = false;
  bool power_of_two = false;
  float least_amax = 0, least_scale = 0;
  Dtype to = Dtype::kE4m3;

  // Where the largest number is sought.
  bool signed_most = false;  // of x, not of |x|
  bool gaps_count = false;   // to the end of the stride
  bool keeps_most = false;   // of the launch before as well
  bool loses_last = false;   // the last number of each run
  bool packed = false;       // rows of x follow each other without gaps
  // How it becomes a scale.
  bool by_inverse_of_largest = false;  // amax times what is nearest to 1 / largest
  bool power_below = false;            // the greatest power of two that is not above
  bool writes_inverse = false;
  // Which scale a number has.
  bool of_first_row = false, of_next_row = false, of_next_run = false;
  // How it is rounded.
  bool toward_zero = false, away_at_ties = false, flushes = false, unheld = false;
  bool loses_last_row = false;
};

using Change = void (*)(Rules&);
struct FaultyRule {
  QuantiseFault doc;
  Change change;
};

constexpr std::array<FaultyRule, 22> kFaultyRules{{
    {{"multiplies-by-inverse", "x times the inverse of the scale where a division is asked for",
      "design"},
     [](Rules& r) { r.multiplies = true; }},
    {{"divides-by-scale", "x / scale where a product with the inverse is asked for", "design"},
     [](Rules& r) { r.multiplies = false; }},
    {{"scale-by-inverse-of-largest", "amax times 1/448 where amax / 448 is asked for", "design"},
     [](Rules& r) { r.by_inverse_of_largest = true; }},
    {{"rounds-toward-zero", "codes are cut, not rounded to nearest", "design"},
     [](Rules& r) { r.toward_zero = true; }},
    {{"rounds-ties-away", "ties go away from zero, not to even", "design"},
     [](Rules& r) { r.away_at_ties = true; }},
    {{"flushes-subnormal-codes", "numbers below the least normal code become 0", "design"},
     [](Rules& r) { r.flushes = true; }},
    {{"overflows", "numbers beyond the largest become NaN or infinity, not the largest", "design"},
     [](Rules& r) { r.unheld = true; }},
    {{"other-format", "e5m2 is written where e4m3 is asked for, or the other way", "design"},
     [](Rules& r) { r.to = r.to == Dtype::kE4m3 ? Dtype::kE5m2 : Dtype::kE4m3; }},
    {{"no-least-scale", "the least scale is left out", "design"},
     [](Rules& r) { r.least_scale = 0; }},
    {{"no-least-amax", "the least amax is left out", "design"}, [](Rules& r) { r.least_amax = 0; }},
    {{"no-power-of-two", "scales are not raised to a power of two", "design"},
     [](Rules& r) { r.power_of_two = false; }},
    {{"power-of-two-below", "scales are lowered to a power of two, so that numbers overflow",
      "design"},
     [](Rules& r) { r.power_below = r.power_of_two; }},
    {{"largest-without-sign", "the largest number is sought, not the largest magnitude", "design"},
     [](Rules& r) { r.signed_most = true; }},
    {{"gaps-count", "numbers between rows count for the largest", "design"},
     [](Rules& r) { r.gaps_count = true; }},
    {{"last-number-left-out", "the last number of a run does not count for the largest", "design"},
     [](Rules& r) { r.loses_last = true; }},
    {{"largest-of-launch-before", "the largest of the launch before was not reset", "design"},
     [](Rules& r) { r.keeps_most = true; }},
    {{"scale-of-first-row", "every row is converted by the scales of the first",
      "vLLM #35242, scales of tokens with stride 0"},
     [](Rules& r) { r.of_first_row = true; }},
    {{"scale-of-next-row", "a row is converted by the scales of the row after it", "design"},
     [](Rules& r) { r.of_next_row = true; }},
    {{"scale-inverted", "1 / scale is written in the place of the scale", "design"},
     [](Rules& r) { r.writes_inverse = true; }},
    {{"scale-of-next-run", "a run of columns is converted by the scale of the run after it",
      "design"},
     [](Rules& r) { r.of_next_run = true; }},
    {{"stride-ignored", "rows of x are read as if no gap were between them", "design"},
     [](Rules& r) { r.packed = true; }},
    {{"last-row-left-out", "the last row is not written", "design"},
     [](Rules& r) { r.loses_last_row = true; }},
}};

Rules rules_of(const QuantiseProblem& problem) {
  Rules rules;
  rules.multiplies = problem.convert == Convert::kMultiply;
  rules.power_of_two = problem.power_of_two;
  rules.least_amax = problem.least_amax;
  rules.least_scale = problem.least_scale;
  rules.to = problem.to;
  return rules;
}

float number_at(const QuantiseProblem& problem, const Rules& rules, const QuantiseArrays& inputs,
                std::int64_t row, std::int64_t column) {
  const std::int64_t stride = rules.packed ? problem.columns : problem.stride;
  return load(problem.from, inputs[0].data(), row * stride + column);
}

std::vector<float> largest_of(const QuantiseProblem& problem, const Rules& rules,
                              const QuantiseArrays& inputs) {
  std::vector<float> most(static_cast<std::size_t>(problem.scale_count()));
  const std::int64_t width = rules.gaps_count ? problem.stride : problem.columns;
  for (std::int64_t row = 0; row < problem.rows; ++row) {
    for (std::int64_t column = 0; column < width; ++column) {
      const std::int64_t in_row = std::min(column, problem.columns - 1);
      const bool last = column + 1 == problem.columns || (column + 1) % problem.scales.columns == 0;
      if (rules.loses_last && last) {
        continue;
      }
      const float x = number_at(problem, rules, inputs, row, column);
      float& of_run = most[static_cast<std::size_t>(problem.scale_at(row, in_row))];
      of_run = std::fmax(of_run, rules.signed_most ? x : std::fabs(x));
    }
  }
  return most;
}

float power_of_two_for(float scale, bool below) {
  int exponent = 0;
  const float fraction = std::frexp(scale, &exponent);
  return std::ldexp(1.0F, fraction == 0.5F || below ? exponent - 1 : exponent);
}

float scale_by(const Rules& rules, Dtype asked, float amax) {
  const auto largest = static_cast<float>(largest_finite(asked));
  const float held = std::max(amax, rules.least_amax);
  const float scale = rules.by_inverse_of_largest ? held * (1 / largest) : held / largest;
  const float kept = std::max(scale, rules.least_scale);
  return rules.power_of_two && kept > 0 ? power_of_two_for(kept, rules.power_below) : kept;
}

// To a number that the format holds, other than by rounding to nearest.
float rounded_by(const Rules& rules, float value) {
  const bool e4m3 = rules.to == Dtype::kE4m3;
  const int bits = e4m3 ? 3 : 2;
  const int least = e4m3 ? -6 : -14;
  if (value == 0 || !std::isfinite(value)) {
    return value;
  }
  const int exponent = std::max(std::ilogb(value), least);
  if (rules.flushes && std::ilogb(value) < least) {
    return std::copysign(0.0F, value);
  }
  const float steps = std::ldexp(value, bits - exponent);
  const float whole = rules.toward_zero ? std::trunc(steps) : std::round(steps);
  return rules.toward_zero || rules.away_at_ties ? std::ldexp(whole, exponent - bits) : value;
}

std::uint8_t code_by(const Rules& rules, float x, float scale) {
  const auto largest = static_cast<float>(largest_finite(rules.to));
  const float inverse = 1 / scale;
  float value = rules.multiplies ? x * inverse : x / scale;
  value = rules.unheld ? value : std::clamp(value, -largest, largest);
  value = rounded_by(rules, value);
  return rules.to == Dtype::kE4m3 ? e4m3_from_float(value) : e5m2_from_float(value);
}

// The place of the scale that a number is converted by.
std::size_t place_of_scale(const QuantiseProblem& problem, const Rules& rules, std::int64_t row,
                           std::int64_t column) {
  const std::int64_t across = problem.scales.across;
  const std::int64_t own = problem.scale_at(row, column);
  const std::int64_t run = own % across;
  const std::int64_t of_row = own / across;
  if (rules.of_first_row) {
    return static_cast<std::size_t>(run);
  }
  if (rules.of_next_row) {
    return static_cast<std::size_t>((of_row + 1) % problem.scales.rows * across + run);
  }
  return static_cast<std::size_t>(rules.of_next_run ? of_row * across + (run + 1) % across : own);
}

QuantiseArrays quantised_by(const Rules& rules, const QuantiseProblem& problem,
                            const QuantiseArrays& inputs, const QuantiseArrays& earlier) {
  std::vector<float> scales(static_cast<std::size_t>(problem.scale_count()));
  if (problem.scales_given) {
    decode(Dtype::kFp32, inputs[1].data(), scales);
  } else {
    std::vector<float> most = largest_of(problem, rules, inputs);
    if (rules.keeps_most && !earlier.empty()) {
      const std::vector<float> kept = largest_of(problem, rules, earlier);
      std::transform(most.begin(), most.end(), kept.begin(), most.begin(),
                     [](float now, float then) { return std::max(now, then); });
    }
    std::transform(most.begin(), most.end(), scales.begin(),
                   [&](float amax) { return scale_by(rules, problem.to, amax); });
  }
  QuantiseArrays outputs;
  for (const ArrayShape& array : outputs_of(problem)) {
    outputs.emplace_back(static_cast<std::size_t>(array.bytes()));
  }
  for (std::int64_t row = 0; row < problem.rows; ++row) {
    for (std::int64_t column = 0; column < problem.columns; ++column) {
      const float scale = scales[place_of_scale(problem, rules, row, column)];
      const float x = number_at(problem, rules, inputs, row, column);
      outputs[0][static_cast<std::size_t>(row * problem.columns + column)] =
          std::byte{code_by(rules, x, scale)};
    }
  }
  if (!problem.scales_given) {
    if (rules.writes_inverse) {
      std::transform(scales.begin(), scales.end(), scales.begin(),
                     [](float scale) { return 1 / scale; });
    }
    encode(Dtype::kFp32, scales, outputs[1].data());
  }
  return outputs;
}

}  // namespace

std::span<const QuantiseFault> quantise_faults() {
  static const std::vector<QuantiseFault> kFaults = [] {
    std::vector<QuantiseFault> faults;
    for (const FaultyRule& entry : kFaultyRules) {
      faults.push_back(entry.doc);
    }
    return faults;
  }();
  return kFaults;
}

QuantiseArrays quantised_with(std::string_view fault, const QuantiseProblem& problem,
                              const QuantiseArrays& inputs, const QuantiseArrays& before,
                              const QuantiseArrays& earlier) {
  Rules rules = rules_of(problem);
  for (const FaultyRule& entry : kFaultyRules) {
    if (entry.doc.fault == fault) {
      entry.change(rules);
    }
  }
  QuantiseArrays outputs = quantised_by(rules, problem, inputs, earlier);
  if (rules.loses_last_row && problem.rows > 0) {
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const std::size_t row =
          outputs[i].size() / static_cast<std::size_t>(i == 0 ? problem.rows : problem.scales.rows);
      std::copy(before[i].end() - static_cast<std::ptrdiff_t>(row), before[i].end(),
                outputs[i].end() - static_cast<std::ptrdiff_t>(row));
    }
  }
  return outputs;
}

namespace {

class FaultyQuantiser final : public Quantiser {
 public:
  explicit FaultyQuantiser(std::string_view fault) : fault_(fault) {}

  [[nodiscard]] Support supports(const QuantiseProblem&, const DeviceFacts&) const override {
    return {};
  }
  void launch(const QuantiseProblem& problem, const ArrayOperands& operands,
              Stream) const override {
    const auto copied = [](const ArrayShapes& shapes, const auto& addresses) {
      QuantiseArrays arrays;
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        const auto* const from = static_cast<const std::byte*>(addresses[i]);
        arrays.emplace_back(from, from + shapes[i].bytes());
      }
      return arrays;
    };
    if (!(problem == before_)) {
      earlier_.clear();
    }
    QuantiseArrays inputs = copied(inputs_of(problem), operands.inputs);
    const QuantiseArrays before = copied(outputs_of(problem), operands.outputs);
    const QuantiseArrays made = quantised_with(fault_, problem, inputs, before, earlier_);
    for (std::size_t i = 0; i < made.size(); ++i) {
      if (!made[i].empty()) {
        std::memcpy(operands.outputs[i], made[i].data(), made[i].size());
      }
    }
    before_ = problem;
    earlier_ = std::move(inputs);
  }

 private:
  std::string_view fault_;
  mutable QuantiseProblem before_;  // of the launch before, as its inputs
  mutable QuantiseArrays earlier_;
};

// Quantises alone.
class QuantiseMutant final : public Backend {
 public:
  explicit QuantiseMutant(const QuantiseFault& fault)
      : name_(fmt::format("mutant:{}", fault.fault)),
        summary_(fault.meaning),
        quantiser_(fault.fault) {}

  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] std::string_view summary() const override { return summary_; }
  [[nodiscard]] Space space() const override { return Space::kHost; }
  [[nodiscard]] Support supports(const Problem&, const DeviceFacts&) const override {
    return {false, "a mutant of op quantise"};
  }
  [[nodiscard]] Numerics numerics(const Problem&) const override { return {}; }
  [[nodiscard]] std::int64_t workspace_bytes(const Problem&) const override { return 0; }
  void launch(const Problem&, const Operands&, Stream) const override {}
  [[nodiscard]] const Quantiser* quantiser() const override { return &quantiser_; }

 private:
  std::string name_, summary_;
  FaultyQuantiser quantiser_;
};

}  // namespace

std::unique_ptr<Backend> make_quantise_mutant(std::string_view fault) {
  for (const QuantiseFault& known : quantise_faults()) {
    if (known.fault == fault) {
      return std::make_unique<QuantiseMutant>(known);
    }
  }
  return nullptr;
}

std::vector<TellingQuantise> telling_quantise() {
  std::vector<TellingQuantise> steps;
  const auto add = [&](const char* id, auto change) {
    QuantiseProblem problem;
    problem.rows = 13;
    problem.columns = problem.stride = 300;
    change(problem);
    ScalesOfRows& scales = problem.scales;
    scales.columns = scales.columns == 1 ? problem.columns : scales.columns;
    scales.across = (problem.columns + scales.columns - 1) / scales.columns;
    scales.rows = scales.by_token ? problem.rows : 1;
    problem.least_scale = static_cast<float>(1 / (512 * largest_finite(problem.to)));
    steps.push_back({id, {problem, 1}});
  };
  const auto by_token = [](QuantiseProblem& problem) { problem.scales.by_token = true; };
  add("token", [&](QuantiseProblem& problem) {
    by_token(problem);
    problem.stride = 320;
  });
  add("block", [&](QuantiseProblem& problem) {
    by_token(problem);
    problem.scales.columns = 128;
  });
  add("tensor", [](QuantiseProblem& problem) { problem.stride = 320; });
  add("token-multiplied", [&](QuantiseProblem& problem) {
    by_token(problem);
    problem.convert = Convert::kMultiply;
  });
  add("block-power-of-two", [&](QuantiseProblem& problem) {
    by_token(problem);
    problem.scales.columns = 64;
    problem.power_of_two = true;
  });
  add("least-amax", [&](QuantiseProblem& problem) {
    by_token(problem);
    problem.rows = 40;
    problem.least_amax = 0x1p-8F;
  });
  add("given", [&](QuantiseProblem& problem) {
    by_token(problem);
    problem.scales_given = true;
    problem.from = Dtype::kFp32;
  });
  add("given-multiplied-e5m2", [&](QuantiseProblem& problem) {
    by_token(problem);
    problem.scales_given = true;
    problem.to = Dtype::kE5m2;
    problem.from = Dtype::kFp16;
    problem.convert = Convert::kMultiply;
  });
  return steps;
}

SelfTestRow hunt_quantise(const QuantiseFault& fault, const std::vector<TellingQuantise>& steps) {
  SelfTestRow row;
  row.fault = fault.fault;
  const std::unique_ptr<Memory> memory = make_host_memory();
  for (const TellingQuantise& telling : steps) {
    const std::unique_ptr<Backend> mutant = make_quantise_mutant(fault.fault);
    const Verdict verdict = verify_quantise(telling.step, *mutant->quantiser(), *memory, true);
    if (verdict.failure) {
      row.caught = true;
      row.level = name(verdict.failure->level);
      row.hypothesis = verdict.failure->hypothesis;
      row.case_id = telling.id;
      break;
    }
  }
  row.named_right = row.hypothesis == fault.fault;
  return row;
}

void try_right_quantisers(const std::vector<TellingQuantise>& steps, SelfTestReport& report) {
  for (const BackendEntry& entry : backend_registry()) {
    if (!entry.why_not_here.empty()) {
      continue;
    }
    const std::unique_ptr<Backend> backend = entry.make();
    const Quantiser* quantiser = backend->quantiser();
    if (quantiser == nullptr) {
      continue;
    }
    const std::unique_ptr<Memory> memory =
        backend->space() == Space::kDevice ? make_device_memory() : make_host_memory();
    for (const TellingQuantise& telling : steps) {
      const Verdict verdict = verify_quantise(telling.step, *quantiser, *memory, true);
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
