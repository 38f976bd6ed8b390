#include "reference/quantise.h"

#include <algorithm>
#include <cmath>

#include "reference/nearest.h"
#include "reference/rounding.h"

namespace lora_bench::reference {
namespace {

// A double has more than twice the bits of fp32, so rounding a quotient or a product of two fp32
// numbers to fp64 first changes nothing.
double to_fp32(double value) { return round_to(Number::kFp32, value); }

double largest_of(Number number) { return number == Number::kE4m3 ? 448.0 : 57344.0; }

double least_power_not_below(double value) {
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);  // in [1/2, 1)
  return std::ldexp(1.0, fraction == 0.5 ? exponent - 1 : exponent);
}

}  // namespace

double scale_for(const QuantiserRule& rule, double amax) {
  const double held = std::max(amax, rule.least_amax);
  const double scale = std::max(to_fp32(held / largest_of(rule.to)), rule.least_scale);
  return rule.power_of_two ? least_power_not_below(scale) : scale;
}

double code_for(const QuantiserRule& rule, double x, double scale) {
  const double largest = largest_of(rule.to);
  const double converted = rule.multiplies ? to_fp32(x * to_fp32(1 / scale)) : to_fp32(x / scale);
  return round_to(rule.to, std::clamp(converted, -largest, largest));
}

Quantised quantise(const Quantiser& quantiser) {
  const std::int64_t columns = quantiser.columns;
  const std::int64_t group = quantiser.group;
  const std::int64_t groups = (columns + group - 1) / group;
  const auto place = [&](std::int64_t row, std::int64_t column) {
    return at((quantiser.one_scale ? 0 : row * groups) + column / group);
  };
  const std::int64_t scales = quantiser.one_scale ? groups : quantiser.rows * groups;
  Buffer x(at(columns)), amax(at(quantiser.rows == 0 ? 0 : scales));
  Quantised out;
  out.codes.resize(at(quantiser.rows * columns));
  for (std::int64_t row = 0; row < quantiser.rows && quantiser.given == nullptr; ++row) {
    read(quantiser.from, quantiser.x, row * quantiser.stride, columns, x.data());
    for (std::int64_t column = 0; column < columns; ++column) {
      double& most = amax[place(row, column)];
      most = std::max(most, std::fabs(x[at(column)]));
    }
  }
  for (std::size_t i = 0; i < amax.size(); ++i) {
    const double scale = quantiser.given == nullptr ? scale_for(quantiser.rule, amax[i])
                                                    : static_cast<double>(quantiser.given[i]);
    out.scales.push_back(static_cast<float>(scale));
  }
  for (std::int64_t row = 0; row < quantiser.rows; ++row) {
    read(quantiser.from, quantiser.x, row * quantiser.stride, columns, x.data());
    for (std::int64_t column = 0; column < columns; ++column) {
      const double code = code_for(quantiser.rule, x[at(column)], out.scales[place(row, column)]);
      out.codes[at(row * columns + column)] =
          static_cast<std::uint8_t>(encode(quantiser.rule.to, code));
    }
  }
  return out;
}

}  // namespace lora_bench::reference
