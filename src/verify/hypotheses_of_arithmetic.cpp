#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "verify/diagnose.h"

namespace lora_bench {
namespace {

// The prediction of a model with something more in every element.
bool explained_by_sum(const Evidence& evidence,
                      std::vector<double> (*more)(const Evidence&, const WrongRow&)) {
  bool proved = false;
  for (const WrongRow& row : evidence.rows) {
    Prediction prediction = RowModel(evidence, row).predict();
    const std::vector<double> terms = more(evidence, row);
    for (std::size_t column = 0; column < terms.size(); ++column) {
      prediction.least[column] += terms[column];
      prediction.most[column] += terms[column];
    }
    const Agreement agreement = agrees(evidence, row, prediction);
    if (agreement == Agreement::kNo) {
      return false;
    }
    proved = proved || agreement == Agreement::kYes;
  }
  return proved;
}

std::vector<double> before_of(const Evidence&, const WrongRow& row) { return row.before; }

std::vector<double> delta_once_more(const Evidence& evidence, const WrongRow& row) {
  return delta_of(evidence, row);
}

std::vector<double> bias_of(const Evidence& evidence, const WrongRow& row) {
  RowModel without(evidence, row);
  without.forget_bias();
  const Prediction right = RowModel(evidence, row).predict();
  const Prediction bare = without.predict();
  std::vector<double> bias(row.got.size());
  for (std::size_t column = 0; column < bias.size(); ++column) {
    bias[column] = (right.least[column] + right.most[column]) / 2 -
                   (bare.least[column] + bare.most[column]) / 2;
  }
  return bias;
}

struct Range {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
};

// The factors of the delta that explain the whole row within the bound, if there are any.
std::optional<Range> factors_of(const Evidence& evidence, const WrongRow& row,
                                const std::vector<double>& bound) {
  const std::vector<double> bias = bias_of(evidence, row);
  const std::vector<double> delta = delta_of(evidence, row);
  Range factors;
  std::int64_t told = 0;
  for (std::size_t column = 0; column < row.got.size(); ++column) {
    const double scaled = delta[column] - bias[column];
    if (row.right.owned[column] == 0 && row.wrong[column] != 0) {
      return std::nullopt;
    }
    if (row.right.owned[column] == 0 || scaled == 0) {
      continue;
    }
    const double rest = bias[column] + (evidence.adds ? row.before[column] : 0);
    const double slack =
        2 * bound[column] + reference::spacing(evidence.number, row.got[column]) / 2;
    const double one = (row.got[column] - slack - rest) / scaled;
    const double other = (row.got[column] + slack - rest) / scaled;
    if (!std::isfinite(one) || !std::isfinite(other)) {
      return std::nullopt;
    }
    factors.least = std::max(factors.least, std::min(one, other));
    factors.most = std::min(factors.most, std::max(one, other));
    ++told;
  }
  // Two unknown errors could share a factor by chance; many cannot.
  constexpr std::int64_t kEnough = 4;
  return told < kEnough || factors.least > factors.most ? std::nullopt : std::optional(factors);
}

// The same of a factor that is not 1 as far as roundings tell; where they may be as large, by what
// the row was judged by.
std::optional<double> other_factor(const Evidence& evidence, const WrongRow& row, Range factors) {
  const auto holds_one = [](const Range& range) { return range.least <= 1 && 1 <= range.most; };
  if (holds_one(factors)) {
    const std::optional<Range> closer = factors_of(evidence, row, row.allowed);
    if (!closer || holds_one(*closer)) {
      return std::nullopt;
    }
    factors = *closer;
  }
  return (factors.least + factors.most) / 2;
}

// With as many digits as tell it from 1.
std::string told_factor(double factor) {
  return std::fabs(factor - 1) < 1e-3 ? fmt::format("{:.9g}", factor)
                                      : fmt::format("{:.4g}", factor);
}

// The next number of the format towards zero, or the value itself.
double cut_to(reference::Number number, double value) {
  const double nearest = reference::round_to(number, value);
  return std::fabs(nearest) > std::fabs(value) && std::isfinite(value)
             ? std::copysign(std::fabs(nearest) - reference::spacing(number, value), value)
             : nearest;
}

double to_bf16(double value) { return reference::round_to(reference::Number::kBf16, value); }
double to_fp16(double value) { return reference::round_to(reference::Number::kFp16, value); }
double cut_to_bf16(double value) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  return static_cast<double>(std::bit_cast<float>(bits & 0xffff0000U));
}

// Whether one element is off by about its own value while the others of its row are not nearly as
// far off: it was lost, doubled or overwritten. Where values cancel, rounding may err as much in
// one, but then it errs alike in the others.
bool one_stands_out(const WrongRow& row) {
  constexpr double kShareOfValue = 0.5, kBeyondOthers = 4;
  double squares = 0, owned = 0;
  const auto error = [&](std::size_t column) {
    return std::fabs(row.got[column] - row.right.expected[column]);
  };
  for (std::size_t column = 0; column < row.got.size(); ++column) {
    if (row.right.owned[column] != 0) {
      squares += error(column) * error(column);
      ++owned;
    }
  }
  for (std::size_t column = 0; column < row.got.size(); ++column) {
    const double square = error(column) * error(column);
    const double others = (squares - square) / std::max(1.0, owned - 1);
    if (row.wrong[column] != 0 && row.right.owned[column] != 0 &&
        error(column) >= kShareOfValue * std::fabs(row.right.expected[column]) &&
        square > kBeyondOthers * kBeyondOthers * others) {
      return true;
    }
  }
  return false;
}

// Whether the errors of a row, beyond its final rounding, are as small and as unlike the delta as
// those of partial sums in bf16.
bool looks_rounded(const Evidence& evidence, const WrongRow& row) {
  constexpr double kTypical = 0x1p-6, kLargest = 0x1p-4;
  const std::vector<double> delta = delta_of(evidence, row);
  double errors = 0, deltas = 0, largest = 0;
  for (std::size_t column = 0; column < row.got.size(); ++column) {
    if (row.right.owned[column] == 0) {
      if (row.wrong[column] != 0) {
        return false;
      }
      continue;
    }
    const double step = reference::spacing(evidence.number, row.right.expected[column]);
    const double error =
        std::max(0.0, std::fabs(row.got[column] - row.right.expected[column]) - step);
    if (!std::isfinite(row.got[column])) {
      return false;
    }
    errors += error * error;
    deltas += delta[column] * delta[column];
    largest = std::max(largest, error * error);
  }
  const auto columns = static_cast<double>(std::max<std::size_t>(1, row.got.size()));
  return deltas > 0 && !one_stands_out(row) && errors <= kTypical * kTypical * deltas &&
         largest <= kLargest * kLargest * deltas / columns * 16;
}

}  // namespace

std::string test_missing_add(const Evidence& evidence) {
  if (!evidence.adds || !explains(evidence, [](RowModel& model) { model.forget_inputs(); })) {
    return "";
  }
  return rows_that(evidence, "hold") + " the delta alone: what was in y is lost";
}

std::string test_double_add(const Evidence& evidence) {
  if (evidence.adds && explained_by_sum(evidence, before_of)) {
    return "what was in y counts twice";
  }
  return explained_by_sum(evidence, delta_once_more) ? "the delta is added twice" : "";
}

std::string test_unasked_add(const Evidence& evidence) {
  const bool fits = !evidence.adds && explained_by_sum(evidence, before_of);
  return fits ? rows_that(evidence, "hold") + " the sum of the result and what was there before"
              : "";
}

std::string test_bias_forgotten(const Evidence& evidence) {
  const bool fits =
      evidence.problem.bias && explains(evidence, [](RowModel& model) { model.forget_bias(); });
  return fits ? "the bias is missing" : "";
}

std::string test_double_bias(const Evidence& evidence) {
  const bool fits = evidence.problem.bias && explained_by_sum(evidence, bias_of);
  return fits ? "the bias is added twice" : "";
}

std::string test_bias_scaled(const Evidence& evidence) {
  const auto more = [](const Evidence& of, const WrongRow& row) {
    std::vector<double> bias = bias_of(of, row);
    const double scale =
        row.adapter < 0 ? 1 : static_cast<double>(of.tensors.scale[at(row.adapter)]);
    for (double& value : bias) {
      value *= scale - 1;
    }
    return bias;
  };
  const bool fits = evidence.problem.bias && explained_by_sum(evidence, more);
  return fits ? rows_that(evidence, "have") + " the bias times the scale of the adapter" : "";
}

std::string test_missing_scale(const Evidence& evidence) {
  const bool fits = explains(evidence, [](RowModel& model) { model.use_scale(1.0F); });
  return fits ? rows_named(evidence) + " without the scale of the adapter" : "";
}

std::string test_double_scale(const Evidence& evidence) {
  const bool fits =
      explains(evidence, [](RowModel& model) { model.use_scale(model.scale() * model.scale()); });
  return fits ? rows_that(evidence, "have") + " the scale of the adapter twice" : "";
}

std::string test_wrong_scale(const Evidence& evidence) {
  std::vector<std::string> parts;
  for (const WrongRow& row : evidence.rows) {
    const std::optional<Range> factors = factors_of(evidence, row, row.right.bound);
    if (!factors) {
      return "";
    }
    if (const std::optional<double> factor = other_factor(evidence, row, *factors)) {
      parts.push_back(fmt::format("{} in row {}", told_factor(*factor), row.token));
    }
  }
  return parts.empty() ? ""
                       : fmt::format("the delta is a constant multiple of the right one: {}",
                                     fmt::join(parts, ", "));
}

std::string test_truncated_result(const Evidence& evidence) {
  if (evidence.number == reference::Number::kFp32 || evidence.rows.empty()) {
    return "";
  }
  for (const WrongRow& row : evidence.rows) {
    for (std::size_t column = 0; column < row.got.size(); ++column) {
      const double expected = row.right.expected[column];
      const double bound = row.right.bound[column];
      const bool explained = row.right.owned[column] != 0
                                 ? cut_to(evidence.number, expected - bound) <= row.got[column] &&
                                       row.got[column] <= cut_to(evidence.number, expected + bound)
                                 : row.wrong[column] == 0;
      if (!explained) {
        return "";
      }
    }
  }
  return rows_that(evidence, "hold") + " the result cut to the output type instead of rounded";
}

std::string test_rounded_delta(const Evidence& evidence) {
  if (!evidence.adds || evidence.numerics.rounds_delta) {
    return "";
  }
  for (const WrongRow& row : evidence.rows) {
    const std::vector<double> delta = delta_of(evidence, row);
    Prediction prediction{row.before, row.before, row.right.owned};
    for (std::size_t column = 0; column < delta.size(); ++column) {
      const double bound = row.right.bound[column];
      prediction.least[column] += reference::round_to(evidence.number, delta[column] - bound);
      prediction.most[column] += reference::round_to(evidence.number, delta[column] + bound);
    }
    if (agrees(evidence, row, prediction) != Agreement::kYes) {
      return "";
    }
  }
  return "delta was rounded to the output type before it was added to y";
}

std::string test_low_precision_intermediate(const Evidence& evidence) {
  struct Change {
    double (*apply)(double);
    const char* what;
  };
  for (const Change& change :
       {Change{to_bf16, "rounded to bf16"}, Change{cut_to_bf16, "truncated to bf16"},
        Change{to_fp16, "rounded to fp16"}}) {
    if (explains(evidence, [&](RowModel& model) { model.change_h(change.apply); })) {
      return fmt::format("h was {} between the two sums", change.what);
    }
  }
  return "";
}

std::string test_low_precision_partials(const Evidence& evidence) {
  // What is lost before h is quantised comes to y in steps of codes.
  const bool fits = has_shrink(evidence.problem.op) && !evidence.problem.h_quantiser &&
                    std::all_of(evidence.rows.begin(), evidence.rows.end(),
                                [&](const WrongRow& row) { return looks_rounded(evidence, row); });
  return fits ? "the errors are as small and as irregular as those of sums over K kept in bf16"
              : "";
}

}  // namespace lora_bench
