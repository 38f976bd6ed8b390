#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "core/dtype.h"
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
  return entries;
}

}  // namespace lora_bench
