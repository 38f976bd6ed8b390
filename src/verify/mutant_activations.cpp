#include <algorithm>
#include <vector>

#include "core/dtype.h"
#include "verify/mutant_values.h"

namespace lora_bench {
namespace {

// The row whose scale the fault takes, counted as Problem::x_row does.
std::int64_t row_of_scale(const Problem& problem, const Operands& operands, std::int64_t x_row,
                          Fault fault) {
  const std::int64_t token = x_row % problem.tokens, of_slice = x_row - token;
  switch (fault) {
    case Fault::kXScaleOfNeighbour:
      return of_slice + (token + 1) % problem.tokens;
    case Fault::kXScaleOfFirstRow:
      return of_slice;
    case Fault::kXScaleByPlaceInPlan: {
      const std::int32_t* const order = operands.token_order;
      return of_slice + (std::find(order, order + problem.tokens, token) - order);
    }
    default:
      return x_row;
  }
}

float scale_of_x_as_used(float scale, Fault fault) {
  switch (fault) {
    case Fault::kXScaleForgotten:
      return 1;
    case Fault::kXScaleTwice:
      return scale * scale;
    case Fault::kXScaleInverted:
      return 1 / scale;
    case Fault::kXScaleRoundedToFp16:
      return rounded_to_bits(scale, kBitsOfFp16);
    case Fault::kXScaleRoundedToBf16:
      return rounded_to_bits(scale, kBitsOfBf16);
    default:
      return scale;
  }
}

}  // namespace

void scale_x(const Problem& problem, const Operands& operands, std::int64_t x_row, Fault fault,
             std::span<float> values) {
  if (!problem.has_scaled_x()) {
    return;
  }
  const ScalesOfRows scales = problem.scales_of_x();
  const std::int64_t first =
      scales.at(row_of_scale(problem, operands, x_row, fault), problem.tokens, 0);
  const std::int64_t later = fault == Fault::kXScaleOfNextGroup ? 1 : 0;
  for (std::int64_t k = 0; k < std::ssize(values); ++k) {
    const std::int64_t group = (k / scales.columns + later) % scales.across;
    const float scale = load(Dtype::kFp32, operands.x_scale, first + group);
    values[static_cast<std::size_t>(k)] *= scale_of_x_as_used(scale, fault);
  }
}

std::vector<FaultEntry> activation_faults() {
  const auto of_scales = [](Fault fault, const char* name, const char* meaning,
                            const char* source = "design") {
    return FaultEntry{fault, {name, meaning, "x-scale-misread", source}};
  };
  return {
      of_scales(Fault::kXScaleForgotten, "x-scale-forgotten",
                "an x of eight bits is multiplied without its scales"),
      of_scales(Fault::kXScaleTwice, "x-scale-twice", "the scales of x are multiplied in twice"),
      of_scales(Fault::kXScaleInverted, "x-scale-inverted",
                "an x of eight bits is divided by its scales"),
      of_scales(Fault::kXScaleOfNeighbour, "x-scale-of-neighbour",
                "a row of x has the scales of the next row"),
      of_scales(Fault::kXScaleOfFirstRow, "x-scale-of-first-row",
                "all rows of x have the scales of the first", "vLLM's lora_shrink_fp8"),
      of_scales(Fault::kXScaleOfNextGroup, "x-scale-of-next-group",
                "a group of columns of x has the scale of the next"),
      of_scales(Fault::kXScaleByPlaceInPlan, "x-scale-by-place-in-plan",
                "the scales of x are read as if they lay in the order of the plan"),
      of_scales(Fault::kXScaleRoundedToFp16, "x-scale-rounded-to-fp16",
                "the scales of x are rounded to the 11 bits of fp16"),
      of_scales(Fault::kXScaleRoundedToBf16, "x-scale-rounded-to-bf16",
                "the scales of x are rounded to the 8 bits of bf16"),
      {Fault::kXEightBitsExchanged,
       {"x-eight-bits-exchanged", "of x e5m2 is read as e4m3, and e4m3 as e5m2", "x-misread",
        "design"}},
      {Fault::kXEightBitsFlushSubnormals,
       {"x-eight-bits-flush-subnormals", "subnormal numbers of an x of eight bits are taken as 0",
        "x-misread", "design"}},
  };
}

}  // namespace lora_bench
