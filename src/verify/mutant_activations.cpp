#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "core/dtype.h"
#include "ops/scaled_weights.h"
#include "verify/mutant_values.h"

namespace lora_bench {
namespace {

// How scales are misread, whichever operand they are of.
enum class ScaleOf : std::uint8_t {
  kOwn,
  kForgotten,
  kTwice,
  kInverted,
  kNeighbour,
  kFirstRow,
  kFirstSlice,
  kNextGroup,
  kPlaceInPlan,
  kRoundedToFp16,
  kRoundedToBf16,
};

// A fault of x and the same of h: what comes after "x-" and "h-" in their names, and what they mean
// of "{}".
struct PairOfFaults {
  Fault of_x, of_h;
  ScaleOf taken;
  const char* name;
  const char* meaning;
  const char* source_of_x = "design";
  const char* source_of_h = "design";
};

constexpr PairOfFaults kPairs[] = {
    {Fault::kXScaleForgotten, Fault::kHScaleForgotten, ScaleOf::kForgotten, "scale-forgotten",
     "an {} of eight bits is multiplied without its scales"},
    {Fault::kXScaleTwice, Fault::kHScaleTwice, ScaleOf::kTwice, "scale-twice",
     "the scales of {} are multiplied in twice"},
    {Fault::kXScaleInverted, Fault::kHScaleInverted, ScaleOf::kInverted, "scale-inverted",
     "an {} of eight bits is divided by its scales"},
    {Fault::kXScaleOfNeighbour, Fault::kHScaleOfNeighbour, ScaleOf::kNeighbour,
     "scale-of-neighbour", "a row of {} has the scales of the next row"},
    {Fault::kXScaleOfFirstRow, Fault::kHScaleOfFirstRow, ScaleOf::kFirstRow, "scale-of-first-row",
     "all rows of {} have the scales of the first", "vLLM's lora_shrink_fp8"},
    {Fault::kXScaleOfFirstSlice, Fault::kHScaleOfFirstSlice, ScaleOf::kFirstSlice,
     "scale-of-first-slice", "the {} of every slice has the scales of the first", "design",
     "vLLM's lora_expand_fp8"},
    {Fault::kXScaleOfNextGroup, Fault::kHScaleOfNextGroup, ScaleOf::kNextGroup,
     "scale-of-next-group", "a group of columns of {} has the scale of the next"},
    {Fault::kXScaleByPlaceInPlan, Fault::kHScaleByPlaceInPlan, ScaleOf::kPlaceInPlan,
     "scale-by-place-in-plan", "the scales of {} are read as if they lay in the order of the plan"},
    {Fault::kXScaleRoundedToFp16, Fault::kHScaleRoundedToFp16, ScaleOf::kRoundedToFp16,
     "scale-rounded-to-fp16", "the scales of {} are rounded to the 11 bits of fp16"},
    {Fault::kXScaleRoundedToBf16, Fault::kHScaleRoundedToBf16, ScaleOf::kRoundedToBf16,
     "scale-rounded-to-bf16", "the scales of {} are rounded to the 8 bits of bf16"},
};

// What the fault does to the scales of the activations of a step.
ScaleOf scale_taken(const Problem& problem, Fault fault) {
  const auto* const pair =
      std::find_if(std::begin(kPairs), std::end(kPairs), [&](const PairOfFaults& each) {
        return fault == (problem.has_scaled_x() ? each.of_x : each.of_h);
      });
  return pair == std::end(kPairs) ? ScaleOf::kOwn : pair->taken;
}

// The row whose scale is taken, counted as Problem::row_of_activations does.
std::int64_t row_of_scale(const Problem& problem, const Operands& operands, std::int64_t row,
                          ScaleOf taken) {
  const std::int64_t token = row % problem.tokens, of_slice = row - token;
  switch (taken) {
    case ScaleOf::kNeighbour:
      return of_slice + (token + 1) % problem.tokens;
    case ScaleOf::kFirstRow:
      return of_slice;
    case ScaleOf::kFirstSlice:
      return token;
    case ScaleOf::kPlaceInPlan: {
      const std::int32_t* const order = operands.token_order;
      return of_slice + (std::find(order, order + problem.tokens, token) - order);
    }
    default:
      return row;
  }
}

float scale_as_used(float scale, ScaleOf taken) {
  switch (taken) {
    case ScaleOf::kForgotten:
      return 1;
    case ScaleOf::kTwice:
      return scale * scale;
    case ScaleOf::kInverted:
      return 1 / scale;
    case ScaleOf::kRoundedToFp16:
      return rounded_to_bits(scale, kBitsOfFp16);
    case ScaleOf::kRoundedToBf16:
      return rounded_to_bits(scale, kBitsOfBf16);
    default:
      return scale;
  }
}

}  // namespace

void scale_activations(const Problem& problem, const Operands& operands, RowPlace at, Fault fault,
                       std::span<float> values) {
  if (!problem.has_scales(at.role)) {
    return;
  }
  const ScaleOf taken = scale_taken(problem, fault);
  const ScalesOfRows scales = problem.scales_of_rows();
  const void* const stored = problem.has_scaled_x() ? operands.x_scale : operands.h_scale;
  const std::int64_t first =
      scales.at(row_of_scale(problem, operands, at.row, taken), problem.tokens, 0);
  const std::int64_t later = taken == ScaleOf::kNextGroup ? 1 : 0;
  for (std::int64_t column = 0; column < std::ssize(values); ++column) {
    const std::int64_t group = (column / scales.columns + later) % scales.across;
    const float scale = load(Dtype::kFp32, stored, first + group);
    values[static_cast<std::size_t>(column)] *= scale_as_used(scale, taken);
  }
}

namespace {

// The largest |h| of a group of lanes of a slice, of which those at or above the rank may count
// too.
float amax_of(const Problem& problem, const Operands& operands, const LanesOfH& at,
              std::int64_t first, std::int64_t end) {
  float amax = 0;
  for (std::int64_t lane = first; lane < end; ++lane) {
    const float value =
        load(problem.dtype[Role::kH], operands.h, problem.h_at(at.slice, at.token, at.rank, lane));
    amax = std::max(amax, std::isnan(value) ? 0 : std::fabs(value));
  }
  return amax;
}

float amax_taken(const Problem& problem, const Operands& operands, const LanesOfH& at, Fault fault,
                 std::int64_t first, std::int64_t group) {
  const bool padding = fault == Fault::kHQuantisedWithPadding;
  const std::int64_t end = std::min(first + group, padding ? problem.max_rank : at.rank);
  LanesOfH taken = at;
  taken.slice = fault == Fault::kHQuantisedByFirstSlice ? 0 : at.slice;
  float amax = amax_of(problem, operands, taken, first, end);
  if (fault == Fault::kHQuantisedByAllSlices) {
    for (taken.slice = 0; taken.slice < problem.slices(); ++taken.slice) {
      const bool live = problem.widths[static_cast<std::size_t>(taken.slice)] > 0;
      amax = live ? std::max(amax, amax_of(problem, operands, taken, first, end)) : amax;
    }
  }
  return amax;
}

float scale_taken(float scale, Fault fault) {
  switch (fault) {
    case Fault::kHQuantisedByBf16Scale:
      return rounded_to_bits(scale, kBitsOfBf16);
    case Fault::kHQuantisedByFp16Scale:
      return rounded_to_bits(scale, kBitsOfFp16);
    default:
      return scale;
  }
}

float code_taken(Dtype to, float value, Fault fault) {
  if (fault == Fault::kHQuantisedTowardsZero) {
    return cut_to(to, value);
  }
  const float code = rounded_to(to, value);
  if (fault == Fault::kHQuantisedTiesAway) {
    // The code of what is a little further from zero.
    return rounded_to(to, std::nextafter(value, 2 * value));
  }
  const float least_normal = to == Dtype::kE4m3 ? 0x1p-6F : 0x1p-14F;
  const bool flushed =
      fault == Fault::kHQuantisedWithoutSubnormals && std::fabs(code) < least_normal;
  return flushed ? 0 : code;
}

HiddenQuantiser quantiser_taken(const Problem& problem, Fault fault) {
  HiddenQuantiser taken = *problem.h_quantiser;
  switch (fault) {
    case Fault::kHQuantisedWithoutGroups:
      taken.group = 0;
      break;
    case Fault::kHQuantisedToOtherFormat:
      taken.rule.to = taken.rule.to == Dtype::kE4m3 ? Dtype::kE5m2 : Dtype::kE4m3;
      break;
    case Fault::kHQuantisedWithoutPowers:
      taken.rule.power_of_two = false;
      break;
    case Fault::kHQuantisedWithoutLeastAmax:
      taken.rule.least_amax = 0;
      break;
    default:
      break;
  }
  return taken;
}

}  // namespace

void quantise_h(const Problem& problem, const Operands& operands, LanesOfH at, Fault fault,
                std::span<float> values) {
  if (!problem.h_quantiser || fault == Fault::kHNotQuantised) {
    return;
  }
  const HiddenQuantiser quantiser = quantiser_taken(problem, fault);
  const std::int64_t group = quantiser.group > 0 ? quantiser.group : problem.max_rank;
  const Dtype to = quantiser.rule.to;
  for (std::int64_t first = 0; first < std::ssize(values); first += group) {
    const auto count = std::min(group, std::ssize(values) - first);
    const auto run =
        values.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
    const float scale = scale_taken(
        scale_for(quantiser.rule, amax_taken(problem, operands, at, fault, first, group)), fault);
    convert_by(quantiser.rule, scale, run);
    for (float& value : run) {
      value = code_taken(to, value, fault);
      value = fault == Fault::kHQuantisedWithoutScale ? value
              : fault == Fault::kHQuantisedInverted   ? value / scale
                                                      : value * scale;
    }
  }
}

namespace {

std::vector<FaultEntry> faults_of_quantised_h() {
  return {
      {Fault::kHNotQuantised,
       {"h-not-quantised", "h is not quantised between the sums", "h-misquantised", "design"}},
      {Fault::kHQuantisedTowardsZero,
       {"h-quantised-towards-zero", "h is cut where it is quantised, not rounded", "h-misquantised",
        "design"}},
      {Fault::kHQuantisedByFirstSlice,
       {"h-quantised-by-first-slice", "h of every slice is quantised with the scale of the first",
        "h-misquantised", "design"}},
      {Fault::kHQuantisedByAllSlices,
       {"h-quantised-by-all-slices", "h of all slices of a token is quantised with one scale",
        "h-misquantised", "vLLM's lora_expand_fp8"}},
      {Fault::kHQuantisedWithoutGroups,
       {"h-quantised-without-groups", "all lanes of h have one scale where groups have their own",
        "h-misquantised", "design"}},
      {Fault::kHQuantisedToOtherFormat,
       {"h-quantised-to-other-format", "h is quantised to e5m2 instead of e4m3, or to e4m3",
        "h-misquantised", "design"}},
      {Fault::kHQuantisedWithoutPowers,
       {"h-quantised-without-powers", "scales of h are not raised to powers of two",
        "h-misquantised", "design"}},
      {Fault::kHQuantisedWithoutLeastAmax,
       {"h-quantised-without-least-amax", "scales of h follow from an amax that is too small",
        "h-misquantised", "design"}},
      {Fault::kHQuantisedWithPadding,
       {"h-quantised-with-padding", "lanes at or above the rank have a part in the scale of h",
        "h-misquantised", "design"}},
      {Fault::kHQuantisedWithoutScale,
       {"h-quantised-without-scale", "codes of h are multiplied without their scales",
        "h-misquantised", "design"}},
      {Fault::kHQuantisedInverted,
       {"h-quantised-inverted", "codes of h are divided by their scales", "h-misquantised",
        "design"}},
      {Fault::kHQuantisedByBf16Scale,
       {"h-quantised-by-bf16-scale", "scales of h are rounded to the 8 bits of bf16",
        "h-misquantised", "design"}},
      {Fault::kHQuantisedByFp16Scale,
       {"h-quantised-by-fp16-scale", "scales of h are rounded to the 11 bits of fp16",
        "h-misquantised", "design"}},
      {Fault::kHQuantisedWithoutSubnormals,
       {"h-quantised-without-subnormals", "subnormal codes of h are taken as 0", "h-misquantised",
        "design"}},
      {Fault::kHQuantisedTiesAway,
       {"h-quantised-ties-away", "h is rounded away from zero at ties", "h-misquantised",
        "design"}},
  };
}

}  // namespace

std::vector<FaultEntry> activation_faults() {
  std::vector<FaultEntry> entries;
  for (const char* const letter : {"x", "h"}) {
    const bool of_x = *letter == 'x';
    for (const PairOfFaults& pair : kPairs) {
      entries.push_back(
          {of_x ? pair.of_x : pair.of_h,
           {fmt::format("{}-{}", letter, pair.name),
            fmt::format(fmt::runtime(pair.meaning), letter),
            fmt::format("{}-scale-misread", letter), of_x ? pair.source_of_x : pair.source_of_h}});
    }
    entries.push_back({of_x ? Fault::kXEightBitsExchanged : Fault::kHEightBitsExchanged,
                       {fmt::format("{}-eight-bits-exchanged", letter),
                        fmt::format("of {} e5m2 is read as e4m3, and e4m3 as e5m2", letter),
                        fmt::format("{}-misread", letter), "design"}});
    entries.push_back(
        {of_x ? Fault::kXEightBitsFlushSubnormals : Fault::kHEightBitsFlushSubnormals,
         {fmt::format("{}-eight-bits-flush-subnormals", letter),
          fmt::format("subnormal numbers of an {} of eight bits are taken as 0", letter),
          fmt::format("{}-misread", letter), "design"}});
  }
  const std::vector<FaultEntry> of_quantised = faults_of_quantised_h();
  entries.insert(entries.end(), of_quantised.begin(), of_quantised.end());
  return entries;
}

}  // namespace lora_bench
