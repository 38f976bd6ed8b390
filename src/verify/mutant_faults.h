#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "verify/mutants.h"

namespace lora_bench {

// What can be wrong with the mutant kernel, in the order of its steps. fault_catalogue() says what
// each means.
enum class Fault : std::uint8_t {
  kNone,
  // Which rows meet which adapter.
  kNoOp,
  kFrozenActiveCount,
  kSegmentsBeyondCaptured,
  kSkipsFirstGroupAfterNone,
  kLastSlotIsNone,
  kFirstRowLost,
  kLastRowLost,
  kPartialTileLost,
  kOneRowWrongAdapter,
  kGroupIndexAsAdapter,
  kUnsortedMetadata,
  kNoneIsFirstAdapter,
  kStaleDeltaForBase,
  kPaddingReadsTokenZero,
  kRowsBeyondOneTileLost,
  kIdleSegmentIsLastSlot,
  kFrozenPlan,
  kGroupsOfRecording,
  // What is kept of the launches before.
  kWeightsOfSameRows,
  kScalesOfSameWeights,
  kFirstAfterIdleLost,
  kHOfOtherRows,
  kWeightsOfFirstLaunch,
  // The sum over K.
  kNeighbourRow,
  kRowOffsetWraps,
  kXStrideIgnored,
  kXOfFirstSlice,
  kXColumnsTakenDense,
  kPackedAtLargestRank,
  kStackedTakenApart,
  kGapOfHWritten,
  kLostKTail32,
  kLostKTail1,
  kBf16Partials,
  kBf16RunningSum,
  kTf32Operands,
  kAlignedLoads,
  kWeightsTakenForX,
  kOrderVariesByRun,
  kOrderVariesByBatch,
  kOrderVariesRarely,
  // The scale.
  kScaleMissing,
  kScaleTwice,
  kScaleOfNeighbour,
  kScaleTwoPercent,
  kScaleLastBits,
  kScaledByBothHalves,
  // h between the two sums.
  kHRoundedToBf16,
  kHTruncatedToBf16,
  kHNotZeroed,
  kAddsOldHUnlessNan,
  kGivenHOverwritten,
  kGivenHLostAtZeroSum,
  kGivenHOfZeroKept,
  kHOfFirstSlice,
  kCastDeclaredAlone,
  // The sum over the rank.
  kRankLaneLost,
  kRank32Halved,
  kPaddingLanesRead,
  kRankZeroReadsLaneZero,
  kRanksOfRecording,
  kPitchOfLargestRank,
  // From delta to y.
  kDeltaRounded,
  kDeltaTwice,
  kYOverwritten,
  kOverwriteSkipped,
  kOverwrittenTimesZero,
  kAddsOldYUnlessNan,
  kIdleRowsKept,
  kIdleRowsKeptUnlessNan,
  kRankZeroRowsKept,
  kYTwice,
  kFp16Saturates,
  kYTruncated,
  kBiasForgotten,
  kBiasTwice,
  kBiasScaled,
  kBiasOnBaseRows,
  kBiasRoundedApart,
  kBiasDeclaredApart,
  kBiasWhereNoneIs,
  kRankZeroBiasForgotten,
  // Which column.
  kColumnShifted,
  kSlicesSwapped,
  kSlicesSplitEqually,
  kZeroWidthShifts,
  kOffsetStartIgnored,
  kOddColumnsLost,
  kFirstColumnUnwritten,
  kYStrideIgnored,
  // Memory that is not the kernel's.
  kColumnsOutsideWritten,
  kLanesAboveRankAddedTo,
  kBaseRowsOfHAddedTo,
  kOnePastTheEnd,
  kOneBeforeTheStart,
  kRowTooMany,
  kHPastTheEnd,
  kXChanged,
  kWeightsChanged,
  kMemoryKept,
  // ... and that is given back, or was asked for by something else than a launch.
  kMappingKept,
  kDescriptorKept,
  kMemoryKeptWhenAsked,
  kMappingKeptWhenAsked,
  kDescriptorKeptWhenAsked,
  kXPutBack,
  kWeightsPutBack,
  kPlanPutBack,
  kScalePutBack,
  kBeforeTheStartPutBack,
  kFarPastTheEndPutBack,
  // Sizes at which everything is wrong.
  kWrongFrom513Tokens,
  kWrongFrom1001Tokens,
  kWrongBeyond60000Tokens,
  kWrongBeyond1024Slots,
  kWrongBeyondRank512,
  kWrongBeyondRank1024,
  kWrongBeyond8Slices,
  kWrongBeyond32Slices,
  kWrongBeyond4096OfK,
  kWrongBeyond4096Columns,
  // Values that are taken for others.
  kZeroRowSkipped,
  kFirstZeroIsPadding,
  kNegativeZeroIsMark,
  kZeroEndsK,
  kZeroEndsRank,
  kZeroYSkipped,
  kZeroSumUnwritten,
  kShareOfY,
  kRowScaledByLargest,
  kXSaturatesAt448,
  kWeightsSaturateAt448,
  kHSaturatesAt65504,
  kYSaturatesAt65504,
  kXFlushesFp16Subnormals,
  kWeightsFlushFp16Subnormals,
  kAFlushesFp16Subnormals,
  kBf16ThroughFp16,
  kOutlierClipped,
  kOutlierDropped,
  kSmallLaneDropped,
  kEqualRowsShareAdapter,
  kEqualRowsShareResult,
  kEqualAShareB,
  kEqualBShareA,
  kBaseRowsAddZero,
  // Weights of eight bits and their scales.
  kWeightScaleForgotten,
  kWeightScaleTwice,
  kWeightScaleInverted,
  kWeightScaleOfNextBlock,
  kWeightScaleOfFirstSlice,
  kWeightScaleOfNeighbour,
  kWeightBlockTransposed,
  kWeightScaleOfTileStart,
  kWeightScalePitchOfFirstSlice,
  kWeightScalesOfFirstLaunch,
  kWeightScaleRoundedToFp16,
  kWeightScaleRoundedToBf16,
  kEightBitsExchanged,
  kEightBitsFlushSubnormals,
  // An x of eight bits and its scales, then a given h.
  kXScaleForgotten,
  kXScaleTwice,
  kXScaleInverted,
  kXScaleOfNeighbour,
  kXScaleOfFirstRow,
  kXScaleOfFirstSlice,
  kXScaleOfNextGroup,
  kXScaleByPlaceInPlan,
  kXScaleRoundedToFp16,
  kXScaleRoundedToBf16,
  kXEightBitsExchanged,
  kXEightBitsFlushSubnormals,
  kHScaleForgotten,
  kHScaleTwice,
  kHScaleInverted,
  kHScaleOfNeighbour,
  kHScaleOfFirstRow,
  kHScaleOfFirstSlice,
  kHScaleOfNextGroup,
  kHScaleByPlaceInPlan,
  kHScaleRoundedToFp16,
  kHScaleRoundedToBf16,
  kHEightBitsExchanged,
  kHEightBitsFlushSubnormals,
  // An h that is quantised between the sums.
  kHNotQuantised,
  kHQuantisedTowardsZero,
  kHQuantisedByFirstSlice,
  kHQuantisedByAllSlices,
  kHQuantisedWithoutGroups,
  kHQuantisedToOtherFormat,
  kHQuantisedWithoutPowers,
  kHQuantisedWithoutLeastAmax,
  kHQuantisedWithPadding,
  kHQuantisedWithoutScale,
  kHQuantisedInverted,
  kHQuantisedByBf16Scale,
  kHQuantisedByFp16Scale,
  kHQuantisedWithoutSubnormals,
  kHQuantisedTiesAway,
  // Factors of rows, the tokens of pairs, and their experts.
  kFactorForgotten,
  kFactorTwice,
  kFactorInverted,
  kFactorOfNextPair,
  kFactorOfFirstChoice,
  kFactorByPlaceInPlan,
  kFactorRoundedToBf16,
  kXOfPair,
  kXOfNextToken,
  kXByPlaceInPlan,
  kXByOneChoiceLess,
  kLaterChoicesLost,
  kExpertOfNext,
  kExpertsSlowest,
  kExpertsOfOneLess,
  kExpertOfFirstAdapter,
  // Errors that a loose declaration of narrow partial sums would hide.
  kLooseRow,
  kLooseDelta,
  kLooseColumn,
  kLooseNoise,
  kLooseScale,
  kLooseLaneLost,
  kLooseKTailLost,
  kLooseSliceLess,
};

[[nodiscard]] constexpr bool remembers(Fault fault) {
  return (fault >= Fault::kWeightsOfSameRows && fault <= Fault::kWeightsOfFirstLaunch) ||
         fault == Fault::kOrderVariesRarely || fault == Fault::kWeightScalesOfFirstLaunch;
}
[[nodiscard]] constexpr bool declares_loosely(Fault fault) { return fault >= Fault::kLooseRow; }
// What such a fault multiplies a delta with.
struct DeltaAt {
  const Operands& operands;
  std::int64_t token = 0, slice = 0, column = 0;
};
[[nodiscard]] float loose_factor(Fault fault, const DeltaAt& at, std::int64_t slices);

struct FaultEntry {
  Fault fault = Fault::kNone;
  MutantDoc doc;
};
[[nodiscard]] const std::vector<FaultEntry>& fault_catalogue();

// Rows to do, in order: `token`'s output from row `source` of x (or h), by `adapter`.
struct RowTask {
  std::int64_t token = 0;
  std::int64_t source = 0;
  std::int32_t adapter = 0;
};
[[nodiscard]] std::vector<RowTask> assign_rows(const Problem& problem, const Operands& operands,
                                               Fault fault);

// Zeros in the rows that no adapter acts on, where the step asks it.
void zero_rows_left_over(const Problem& problem, const Operands& operands, Fault fault);

// So many elements from `first` on, each a stride from the one before.
[[nodiscard]] std::vector<float> decoded(Dtype dtype, const void* array, std::int64_t first,
                                         std::int64_t count, std::int64_t stride = 1);
// Whether a fault is one of operands that lie otherwise than each apart and without gaps, which no
// other fault takes.
[[nodiscard]] bool is_of_layout(Fault fault);
// How many lanes of an adapter of that rank are summed, and how far apart rows of B lie.
[[nodiscard]] std::int64_t lanes_to_expand(const Problem& problem, Fault fault, std::int64_t rank);
[[nodiscard]] std::int64_t pitch_of_b(const Problem& problem, Fault fault);

// Which slice's weights a slice uses.
[[nodiscard]] std::int64_t weights_of(const Problem& problem, Fault fault, std::int64_t slice);

// Which slice's bias a slice adds; -1: none.
[[nodiscard]] std::int64_t slice_of_bias(const Problem& problem, Fault fault, std::int64_t slice);

// The column of y that `column` of `slice` goes to, whether it is left out, and what lies between
// rows.
[[nodiscard]] std::int64_t y_column(const Problem& problem, Fault fault, std::int64_t slice,
                                    std::int64_t column);
[[nodiscard]] bool skips_column(const Problem& problem, Fault fault, std::int64_t slice,
                                std::int64_t column);
[[nodiscard]] std::int64_t y_pitch(const Problem& problem, Fault fault);

[[nodiscard]] std::unique_ptr<Backend> make_mutant_kernel(Fault fault, const std::string& name);

}  // namespace lora_bench
