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
  bool power_above = false;            // the least power of two that is above
  bool by_leading_bits = false;        // of its fraction, when it is raised to a power of two
  bool writes_inverse = false;
  // Which scale a number has.
  bool of_first_row = false, of_next_row = false, of_next_run = false;
  // How it is rounded.
  bool toward_zero = false, away_at_ties = false, flushes = false, unheld = false;
  bool away_at_subnormal_ties = false;
  bool loses_last_row = false;
};

using Change = void (*)(Rules&);
struct FaultyRule {
  QuantiseFault doc;
  Change change;
};

constexpr std::array<FaultyRule, 25> kFaultyRules{{
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
    {{"power-of-two-raised", "a scale that is a power of two already is raised to the next one",
      "design"},
     [](Rules& r) { r.power_above = r.power_of_two; }},
    {{"low-bits-cut", "the low 16 bits of a scale do not count when it is raised to a power of two",
      "design"},
     [](Rules& r) { r.by_leading_bits = r.power_of_two; }},
    {{"subnormal-ties-away", "ties of subnormal codes go away from zero, not to even", "design"},
     [](Rules& r) { r.away_at_subnormal_ties = true; }},
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

// Of a normal number.
float power_of_two_for(const Rules& rules, float scale) {
  constexpr std::uint32_t kFraction = 0x7fffffU, kLowBits = 0xffffU;
  const auto bits = std::bit_cast<std::uint32_t>(scale);
  const std::uint32_t fraction = bits & kFraction & (rules.by_leading_bits ? ~kLowBits : ~0U);
  const bool raised = !rules.power_below && (fraction != 0 || rules.power_above);
  return std::bit_cast<float>((bits & ~kFraction) + (raised ? kFraction + 1 : 0));
}

float scale_by(const Rules& rules, Dtype asked, float amax) {
  const auto largest = static_cast<float>(largest_finite(asked));
  const float held = std::max(amax, rules.least_amax);
  const float scale = rules.by_inverse_of_largest ? held * (1 / largest) : held / largest;
  const float kept = std::max(scale, rules.least_scale);
  return rules.power_of_two && kept > 0 ? power_of_two_for(rules, kept) : kept;
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
  const bool away =
      rules.away_at_ties || (rules.away_at_subnormal_ties && std::ilogb(value) < least);
  return rules.toward_zero || away ? std::ldexp(whole, exponent - bits) : value;
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

}  // namespace lora_bench
