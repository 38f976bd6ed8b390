#include <algorithm>
#include <vector>

#include "core/dtype.h"
#include "verify/mutant_values.h"

namespace lora_bench {
namespace {

// Where the scale of an element lies among those of its slot, as the fault takes it.
std::int64_t place_in_slot(const ScaleBlocks& blocks, const WeightsPlace& from, std::int64_t column,
                           Fault fault) {
  std::int64_t down = from.row / blocks.rows, across = column / blocks.columns;
  const bool of_a = from.weights == Role::kA;
  if (fault == Fault::kWeightScaleOfNextBlock) {
    down = of_a ? down : (down + 1) % blocks.down;
    across = of_a ? (across + 1) % blocks.across : across;
  } else if (fault == Fault::kWeightBlockTransposed) {
    down = from.row / blocks.columns;
    across = column / blocks.rows;
  } else if (fault == Fault::kWeightScaleOfTileStart) {
    across -= of_a ? across % 2 : 0;
  }
  return std::min(down * blocks.across + across, blocks.of_slot() - 1);
}

float scale_as_used(float scale, Fault fault) {
  switch (fault) {
    case Fault::kWeightScaleForgotten:
      return 1;
    case Fault::kWeightScaleTwice:
      return scale * scale;
    case Fault::kWeightScaleInverted:
      return 1 / scale;
    case Fault::kWeightScaleRoundedToFp16:
      return rounded_to_bits(scale, kBitsOfFp16);
    case Fault::kWeightScaleRoundedToBf16:
      return rounded_to_bits(scale, kBitsOfBf16);
    default:
      return scale;
  }
}

}  // namespace

void scale_rows(const Problem& problem, const Operands& operands, WeightsPlace first,
                std::int64_t pitch, Fault fault, std::span<float> values) {
  if (!problem.has_scaled_weights()) {
    return;
  }
  const bool of_a = first.weights == Role::kA;
  const std::int64_t columns = std::min(pitch, of_a ? problem.in_features : problem.max_rank);
  if (fault == Fault::kWeightScaleOfFirstSlice && problem.widths.front() > 0) {
    first.slice = 0;
  }
  if (fault == Fault::kWeightScaleOfNeighbour) {
    first.slot = (first.slot + 1) % problem.slots;
  }
  const ScaleBlocks blocks = problem.scales_of(first.weights, first.slice);
  const auto& addresses = of_a ? operands.a_scale : operands.b_scale;
  const void* const stored = addresses[static_cast<std::size_t>(first.slice)];
  // From a slot to the next; where that of the first slice leads out of the array, to its end.
  const bool pitch_of_first = fault == Fault::kWeightScalePitchOfFirstSlice;
  const std::int64_t of_slot =
      problem.scales_of(first.weights, pitch_of_first ? 0 : first.slice).of_slot();
  const std::int64_t last = problem.slots * blocks.of_slot() - 1;
  for (std::int64_t begin = 0; begin < std::ssize(values); begin += pitch, ++first.row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      const std::int64_t place = place_in_slot(blocks, first, column, fault);
      const float scale = load(Dtype::kFp32, stored, std::min(first.slot * of_slot + place, last));
      values[static_cast<std::size_t>(begin + column)] *= scale_as_used(scale, fault);
    }
  }
}

std::vector<FaultEntry> weight_faults() {
  const auto of_scales = [](Fault fault, const char* name, const char* meaning,
                            const char* source = "design") {
    return FaultEntry{fault, {name, meaning, "weight-scale-misread", source}};
  };
  return {
      of_scales(Fault::kWeightScaleForgotten, "weight-scale-forgotten",
                "weights of eight bits are multiplied without their scales"),
      of_scales(Fault::kWeightScaleTwice, "weight-scale-twice",
                "the scales of A and B are multiplied in twice"),
      of_scales(Fault::kWeightScaleInverted, "weight-scale-inverted",
                "weights of eight bits are divided by their scales"),
      of_scales(Fault::kWeightScaleOfNextBlock, "weight-scale-of-next-block",
                "a block of K of A, or of outputs of B, has the scale of the next"),
      of_scales(Fault::kWeightScaleOfFirstSlice, "weight-scale-of-first-slice",
                "every slice has the scales of the first", "vLLM's lora_expand_fp8"),
      of_scales(Fault::kWeightScaleOfNeighbour, "weight-scale-of-neighbour",
                "an adapter has the scales of the next slot"),
      of_scales(Fault::kWeightBlockTransposed, "weight-block-transposed",
                "rows and columns of a block of scales are taken for each other"),
      of_scales(Fault::kWeightScaleOfTileStart, "weight-scale-of-tile-start",
                "a tile of K of two blocks has the scale of the first", "vLLM's lora_shrink_fp8"),
      of_scales(Fault::kWeightScalePitchOfFirstSlice, "weight-scale-pitch-of-first-slice",
                "scales of a slot are sought in every slice where the first slice has them",
                "vLLM's lora_expand_fp8"),
      {Fault::kWeightScalesOfFirstLaunch,
       {"weight-scales-of-first-launch",
        "scales of A and B are read in the first launch alone, and kept", "",
        "vLLM's lora_expand_fp8", Part::kNone, true}},
      of_scales(Fault::kWeightScaleRoundedToFp16, "weight-scale-rounded-to-fp16",
                "the scales of A and B are rounded to the 11 bits of fp16"),
      of_scales(Fault::kWeightScaleRoundedToBf16, "weight-scale-rounded-to-bf16",
                "the scales of A and B are rounded to the 8 bits of bf16"),
      {Fault::kEightBitsExchanged,
       {"eight-bits-exchanged", "e5m2 is read as e4m3, and e4m3 as e5m2", "weights-misread",
        "vLLM's lora_shrink_fp8"}},
      {Fault::kEightBitsFlushSubnormals,
       {"eight-bits-flush-subnormals", "subnormal numbers of eight bits are taken as 0",
        "weights-misread", "design"}},
  };
}

}  // namespace lora_bench
