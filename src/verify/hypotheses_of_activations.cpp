#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/dtype.h"
#include "reference/quantise.h"
#include "verify/diagnose.h"

namespace lora_bench {
namespace {

// The scales of x or h of one case, as Problem::row_of_activations counts their rows.
struct RowScales {
  const Problem& problem;
  const HostTensor& tensor;
  ScalesOfRows scales = problem.scales_of_rows();

  [[nodiscard]] float of(std::int64_t row, std::int64_t group) const {
    return load(tensor.dtype, tensor.data.data(), scales.at(row, problem.tokens, 0) + group);
  }
};

// A group of a row of one slice, whose rows begin at `first`.
struct GroupOfRow {
  std::int64_t first = 0, token = 0, group = 0;
};

float own(const RowScales& scales, const GroupOfRow& at) {
  return scales.of(at.first + at.token, at.group);
}

struct RowScaleMisreading {
  const char* how = "";
  float (*scale)(const RowScales& scales, const GroupOfRow& at) = nullptr;
};

constexpr RowScaleMisreading kRowScaleMisreadings[] = {
    {"left out", [](const RowScales&, const GroupOfRow&) { return 1.0F; }},
    {"multiplied in twice", [](const RowScales& scales,
                               const GroupOfRow& at) { return own(scales, at) * own(scales, at); }},
    {"divided by",
     [](const RowScales& scales, const GroupOfRow& at) { return 1 / own(scales, at); }},
    {"those of the next row",
     [](const RowScales& scales, const GroupOfRow& at) {
       return scales.of(at.first + (at.token + 1) % scales.problem.tokens, at.group);
     }},
    {"those of the first row",
     [](const RowScales& scales, const GroupOfRow& at) { return scales.of(at.first, at.group); }},
    {"those of the first slice",
     [](const RowScales& scales, const GroupOfRow& at) { return scales.of(at.token, at.group); }},
    {"those of the next group of columns",
     [](const RowScales& scales, const GroupOfRow& at) {
       return scales.of(at.first + at.token, (at.group + 1) % scales.scales.across);
     }},
    {"read as if they lay in the order of the plan",
     [](const RowScales& scales, const GroupOfRow& at) {
       const std::vector<std::int32_t>& order = scales.problem.plan.token_order;
       const auto place = std::find(order.begin(), order.end(), at.token) - order.begin();
       return scales.of(at.first + place, at.group);
     }},
    {"rounded to the 11 bits of fp16",
     [](const RowScales& scales, const GroupOfRow& at) {
       return rounded_to_bits(own(scales, at), kBitsOfFp16);
     }},
    {"rounded to the 8 bits of bf16",
     [](const RowScales& scales, const GroupOfRow& at) {
       return rounded_to_bits(own(scales, at), kBitsOfBf16);
     }},
};

bool explained_by(const Evidence& evidence, const RowScaleMisreading& misreading) {
  const Problem& problem = evidence.problem;
  const RowScales scales{
      problem, problem.has_scaled_x() ? evidence.tensors.x_scale : evidence.tensors.h_scale};
  std::size_t next = 0;
  return explains(evidence, [&](RowModel& model) {
    const std::int64_t token = evidence.rows[next++].token;
    std::vector<float> read;
    for (std::int64_t slice = 0; slice < (problem.own_activations() ? problem.slices() : 1);
         ++slice) {
      for (std::int64_t group = 0; group < scales.scales.across; ++group) {
        read.push_back(
            misreading.scale(scales, {problem.row_of_activations(slice, 0), token, group}));
      }
    }
    model.use_scales_of_row(std::move(read));
  });
}

std::string scales_misread(const Evidence& evidence, Role activations) {
  if (!evidence.problem.has_scales(activations)) {
    return "";
  }
  for (const RowScaleMisreading& misreading : kRowScaleMisreadings) {
    if (explained_by(evidence, misreading)) {
      return fmt::format("the scales of {} are {}", name(activations), misreading.how);
    }
  }
  return "";
}

std::string numbers_misread(const Evidence& evidence, Role activations) {
  if (!evidence.problem.has_scales(activations)) {
    return "";
  }
  const Dtype stored = evidence.problem.dtype[activations];
  const Dtype other = stored == Dtype::kE4m3 ? Dtype::kE5m2 : Dtype::kE4m3;
  if (explains(evidence, [&](RowModel& model) {
        model.read_activations_as(other == Dtype::kE4m3 ? reference::Number::kE4m3
                                                        : reference::Number::kE5m2);
      })) {
    return fmt::format("{} in {} is read as {}", name(activations), name(stored), name(other));
  }
  const bool flushed = explains(evidence, [&](RowModel& model) {
    model.read_activations(without_subnormals(stored, model.activations()));
  });
  return flushed ? fmt::format("subnormal numbers of {} in {} are taken as 0", name(activations),
                               name(stored))
                 : "";
}

// How h may be quantised instead.
struct Misquantised {
  reference::HiddenQuantiser quantiser;
  bool not_at_all = false, towards_zero = false, of_first_slice = false, of_all_slices = false;
  bool with_padding = false, scale_forgotten = false, scale_inverted = false;
  bool flushes_subnormals = false, ties_away = false;
  int bits_of_scale = 24;
};

struct QuantisedOtherwise {
  const char* how;
  void (*change)(Misquantised&);
};
constexpr QuantisedOtherwise kQuantisedOtherwise[] = {
    {"h is rounded towards zero where it is quantised",
     [](Misquantised& m) { m.towards_zero = true; }},
    {"h is quantised with the scales of the first slice",
     [](Misquantised& m) { m.of_first_slice = true; }},
    {"h of all slices is quantised with one scale",
     [](Misquantised& m) { m.of_all_slices = true; }},
    {"all lanes of h are quantised with one scale", [](Misquantised& m) { m.quantiser.group = 0; }},
    {"h is quantised to the other format of eight bits",
     [](Misquantised& m) {
       reference::Number& to = m.quantiser.rule.to;
       to = to == reference::Number::kE4m3 ? reference::Number::kE5m2 : reference::Number::kE4m3;
     }},
    {"the scales of h are not raised to powers of two",
     [](Misquantised& m) { m.quantiser.rule.power_of_two = false; }},
    {"the scales of h are raised to powers of two",
     [](Misquantised& m) { m.quantiser.rule.power_of_two = true; }},
    {"the scales of h leave out quantiser.least_amax",
     [](Misquantised& m) { m.quantiser.rule.least_amax = 0; }},
    {"the scales of h leave out quantiser.least_scale",
     [](Misquantised& m) { m.quantiser.rule.least_scale = 0; }},
    {"h is multiplied with the inverse of its scale where it is to be divided, or divided",
     [](Misquantised& m) { m.quantiser.rule.multiplies = !m.quantiser.rule.multiplies; }},
    {"the scales of h are rounded to the 8 bits of bf16",
     [](Misquantised& m) { m.bits_of_scale = kBitsOfBf16; }},
    {"the scales of h are rounded to the 11 bits of fp16",
     [](Misquantised& m) { m.bits_of_scale = kBitsOfFp16; }},
    {"subnormal codes of h are taken as 0", [](Misquantised& m) { m.flushes_subnormals = true; }},
    {"h is rounded away from zero at ties where it is quantised",
     [](Misquantised& m) { m.ties_away = true; }},
    {"the codes of h are multiplied without their scales",
     [](Misquantised& m) { m.scale_forgotten = true; }},
    {"the codes of h are divided by their scales",
     [](Misquantised& m) { m.scale_inverted = true; }},
    {"lanes at or above the rank have a part in the scales of h",
     [](Misquantised& m) { m.with_padding = true; }},
    {"h is not quantised between the sums", [](Misquantised& m) { m.not_at_all = true; }},
};

double towards_zero(reference::Number number, double x, double code) {
  return std::fabs(code) <= std::fabs(x)
             ? code
             : std::copysign(std::fabs(code) - reference::spacing(number, x), x);
}

// At a tie the code that is further from zero.
double ties_away(reference::Number number, double x, double code) {
  const double step = reference::spacing(number, x);
  return std::fabs(x) - std::fabs(code) == step / 2 ? std::copysign(std::fabs(code) + step, x)
                                                    : code;
}

double least_normal(reference::Number number) {
  return number == reference::Number::kE4m3 ? 0x1p-6 : 0x1p-14;
}

double code_otherwise(const Misquantised& how, double x, double scale) {
  const reference::QuantiserRule& rule = how.quantiser.rule;
  const double code = reference::code_for(rule, x, scale);
  if (how.towards_zero) {
    return towards_zero(rule.to, x / scale, code);
  }
  if (how.ties_away) {
    return ties_away(rule.to, reference::round_to(reference::Number::kFp32, x / scale), code);
  }
  return how.flushes_subnormals && std::fabs(code) < least_normal(rule.to) ? 0 : code;
}

// The h of one row that is not quantised, [slices, max_rank], and its rank.
void quantise_otherwise(const Evidence& evidence, const Misquantised& how, std::int64_t rank,
                        std::vector<double>& h) {
  const Problem& problem = evidence.problem;
  const reference::QuantiserRule& rule = how.quantiser.rule;
  const std::int64_t group = how.quantiser.group > 0 ? how.quantiser.group : problem.max_rank;
  const std::vector<std::byte> unwritten(sizeof(float), evidence.tensors.scratch);
  const double padding = std::fabs(static_cast<double>(load(Dtype::kFp32, unwritten.data(), 0)));
  const std::vector<double> given = h;
  const auto amax_of = [&](std::int64_t slice, std::int64_t first) {
    double amax = 0;
    for (std::int64_t lane = first; lane < std::min(first + group, problem.max_rank); ++lane) {
      const double value = std::fabs(given[at(slice * problem.max_rank + lane)]);
      amax = lane < rank        ? std::max(amax, value)
             : how.with_padding ? std::max(amax, padding)
                                : amax;
    }
    return amax;
  };
  for (std::int64_t slice = 0; slice < problem.slices() && !how.not_at_all; ++slice) {
    for (std::int64_t lane = 0; lane < rank; ++lane) {
      const std::int64_t first = lane / group * group;
      double amax = amax_of(how.of_first_slice ? 0 : slice, first);
      for (std::int64_t other = 0; how.of_all_slices && other < problem.slices(); ++other) {
        amax = std::max(amax, amax_of(other, first));
      }
      double& value = h[at(slice * problem.max_rank + lane)];
      const double scale =
          rounded_to_bits(static_cast<float>(reference::scale_for(rule, amax)), how.bits_of_scale);
      const double code = code_otherwise(how, value, scale);
      value = how.scale_forgotten ? code : how.scale_inverted ? code / scale : code * scale;
    }
  }
}

}  // namespace

std::string test_h_misquantised(const Evidence& evidence) {
  if (!evidence.problem.h_quantiser) {
    return "";
  }
  const auto explained_by = [&](void (*change)(Misquantised&)) {
    return explains(evidence, [&](RowModel& model) {
      Misquantised how{model.quantiser_of_h()};
      change(how);
      model.change_all_of_h([&, rank = model.rank()](std::vector<double>& h) {
        quantise_otherwise(evidence, how, rank, h);
      });
    });
  };
  if (const Dtype declared = evidence.numerics.intermediate; !is_eight_bits(declared)) {
    return explained_by([](Misquantised&) {})
               ? fmt::format("h is declared to be kept in {}, but was quantised", name(declared))
               : "";
  }
  for (const QuantisedOtherwise& otherwise : kQuantisedOtherwise) {
    if (explained_by(otherwise.change)) {
      return otherwise.how;
    }
  }
  return "";
}

std::string test_x_scale_misread(const Evidence& evidence) {
  return scales_misread(evidence, Role::kX);
}

std::string test_x_misread(const Evidence& evidence) { return numbers_misread(evidence, Role::kX); }

std::string test_h_scale_misread(const Evidence& evidence) {
  return scales_misread(evidence, Role::kH);
}

std::string test_h_misread(const Evidence& evidence) { return numbers_misread(evidence, Role::kH); }

}  // namespace lora_bench
