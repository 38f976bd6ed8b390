#include "verify/mutant_faults.h"

#include "verify/mutant_values.h"

namespace lora_bench {
namespace {

using FaultEntries = std::vector<FaultEntry>;

FaultEntries row_faults() {
  return {
      {Fault::kNoOp, {"no-op", "nothing is computed, y stays as it was", "zero-delta", "design"}},
      {Fault::kFrozenActiveCount,
       {"frozen-active-count", "the count of active adapters was captured as 0 and never updated",
        "zero-delta", "vLLM #34119"}},
      {Fault::kSegmentsBeyondCaptured,
       {"segments-beyond-captured", "groups after the first are dropped, as one was captured",
        "zero-delta", "SGLang #28371"}},
      {Fault::kSkipsFirstGroupAfterNone,
       {"skips-first-group-after-none", "if a row has no adapter, the first adapter is skipped",
        "zero-delta", "vLLM #32235, SGLang #5928"}},
      {Fault::kLastSlotIsNone,
       {"last-slot-is-none", "the highest slot is treated as no adapter", "zero-delta", "design"}},
      {Fault::kFirstRowLost,
       {"first-row-lost", "the first row of every group is left out", "zero-delta", "design"}},
      {Fault::kLastRowLost,
       {"last-row-lost", "the last row of every group is left out", "zero-delta", "design"}},
      {Fault::kPartialTileLost,
       {"partial-tile-lost", "rows beyond whole tiles of four are left out", "zero-delta",
        "design"}},
      {Fault::kOneRowWrongAdapter,
       {"one-row-wrong-adapter", "one row of the first group gets the next active adapter",
        "wrong-adapter", "design"}},
      {Fault::kGroupIndexAsAdapter,
       {"group-index-as-adapter", "the index of a group is taken for the id of its adapter",
        "wrong-adapter", "design"}},
      {Fault::kUnsortedMetadata,
       {"unsorted-metadata", "ids in token order are applied to rows sorted by adapter",
        "wrong-adapter", "vLLM #15979"}},
      {Fault::kNoneIsFirstAdapter,
       {"none-is-first-adapter", "rows without adapter get the first active one",
        "base-rows-written", "TensorRT-LLM #2096"}},
      {Fault::kStaleDeltaForBase,
       {"stale-delta-for-base", "rows without adapter get the delta left by the last row",
        "neighbour-row", "vLLM #42008"}},
      {Fault::kPaddingReadsTokenZero,
       {"padding-reads-token-zero", "the padding of a partial tile works on token 0",
        "base-rows-written", "vLLM #32279"}},
      {Fault::kRowsBeyondOneTileLost,
       {"rows-beyond-one-tile-lost", "rows of a group or segment beyond 16 are left out",
        "zero-delta", "design"}},
      {Fault::kIdleSegmentIsLastSlot,
       {"idle-segment-is-last-slot", "segments that do nothing get the adapter of the last slot",
        "base-rows-written", "design"}},
      {Fault::kFrozenPlan,
       {"frozen-plan", "the rows of the first launch are reused by later ones", "state-left",
        "vLLM #34119, SGLang #28371", Part::kRelations}},
      {Fault::kGroupsOfRecording,
       {"groups-of-recording", "groups beyond as many as were recorded are dropped", "state-left",
        "vLLM #34119, SGLang #28371", Part::kRelations}},
      {Fault::kWeightsOfSameRows,
       {"weights-of-same-rows", "A is read again only where x, the plan or a scale is new",
        "state-left", "design", Part::kRelations}},
      {Fault::kScalesOfSameWeights,
       {"scales-of-same-weights", "scales are read again only where x or a weight is new",
        "state-left", "design", Part::kRelations}},
      {Fault::kFirstAfterIdleLost,
       {"first-after-idle-lost", "nothing is done after a launch that had nothing to do",
        "state-left", "vLLM #34119", Part::kRelations}},
      {Fault::kHOfOtherRows,
       {"h-of-other-rows",
        "h of the launch before the last one is kept where its weights are the same and y is not",
        "state-left", "design", Part::kRelations}},
      {Fault::kWeightsOfFirstLaunch,
       {"weights-of-first-launch", "A is read in the first launch alone, and kept", "stale-weights",
        "design"}},
  };
}

FaultEntries lane_sum_faults() {
  return {
      {Fault::kNeighbourRow,
       {"neighbour-row", "every row reads its neighbour", "neighbour-row", "design"}},
      {Fault::kRowOffsetWraps,
       {"row-offset-wraps", "row times stride overflows after 16 rows and wraps to the start",
        "neighbour-row", "vLLM #53028, #39585"}},
      {Fault::kXStrideIgnored,
       {"x-stride-ignored", "rows of x are taken to be contiguous", "unused-memory-read",
        "design"}},
      {Fault::kXOfFirstSlice,
       {"x-of-first-slice", "every slice reads the x of the first, where each has its own", "",
        "vLLM's add_shrink", Part::kNone, true}},
      {Fault::kXColumnsTakenDense,
       {"x-columns-taken-dense", "columns of x are taken to lie side by side", "unused-memory-read",
        "vLLM's add_shrink"}},
      {Fault::kPackedAtLargestRank,
       {"packed-at-largest-rank",
        "slices of A that are packed by the adapter's rank are taken to lie at the largest",
        "layout-misread", "SGLang's chunked_sgmv_lora_shrink"}},
      {Fault::kStackedTakenApart,
       {"stacked-taken-apart",
        "a slot of a stacked B is taken to have the outputs of its slice alone", "layout-misread",
        "SGLang's chunked_sgmv_lora_expand"}},
      {Fault::kGapOfHWritten,
       {"gap-of-h-written", "an element behind each row of h is written", "written-outside",
        "design", Part::kMemory}},
      {Fault::kLostKTail32,
       {"lost-k-tail-32", "the last 32 elements of every sum over K are left out", "lost-k-tail",
        "design"}},
      {Fault::kLostKTail1,
       {"lost-k-tail-1", "the last element of every sum over K is left out", "lost-k-tail",
        "design"}},
      {Fault::kBf16Partials,
       {"bf16-partials", "split-K partial sums are stored as bf16", "low-precision-partials",
        "design"}},
      {Fault::kBf16RunningSum,
       {"bf16-running-sum", "split-K partial sums are added up in bf16, as by bf16 atomics",
        "low-precision-partials", "design"}},
      {Fault::kTf32Operands,
       {"tf32-operands", "x and A are cut to the 11 bits of tf32, which small integers survive",
        "low-precision-partials", "design", Part::kBounded}},
      {Fault::kAlignedLoads,
       {"aligned-loads", "the address of x is rounded down to 16 bytes", "unused-memory-read",
        "design", Part::kShifted}},
      {Fault::kWeightsTakenForX,
       {"weights-taken-for-x", "A and B of another 16-bit dtype are read as if they had that of x",
        "", "vLLM's lora_dtype", Part::kNone, true}},
      {Fault::kOrderVariesByRun,
       {"order-varies-by-run", "partial sums meet in another order in every second launch",
        "not-repeatable", "vLLM #50059", Part::kRelations}},
      {Fault::kOrderVariesByBatch,
       {"order-varies-by-batch", "partial sums meet in another order when a row is alone",
        "depends-on-batch", "vLLM #30097", Part::kRelations}},
      {Fault::kOrderVariesRarely,
       {"order-varies-rarely",
        "partial sums meet in another order in the 16th launch of one step in a row",
        "not-repeatable", "vLLM #50059", Part::kRelations}},
  };
}

// Between the two products: the scale, and how h is kept.
FaultEntries faults_of_h() {
  return {
      {Fault::kScaleMissing,
       {"scale-missing", "the scale is not applied", "missing-scale", "design"}},
      {Fault::kScaleTwice, {"scale-twice", "the scale is applied twice", "double-scale", "design"}},
      {Fault::kScaleOfNeighbour,
       {"scale-of-neighbour", "the scale of the next slot is applied", "wrong-scale", "design"}},
      {Fault::kScaleTwoPercent,
       {"scale-two-percent", "the scale is 2 % too large", "wrong-scale", "design"}},
      {Fault::kScaleLastBits,
       {"scale-last-bits", "the scale is one part in 2^21 too large, less than roundings may take",
        "wrong-scale", "design", Part::kExact}},
      {Fault::kScaledByBothHalves,
       {"scaled-by-both-halves", "expand applies the scale again where shrink ran apart from it",
        "", "design", Part::kRelations}},
      {Fault::kHRoundedToBf16,
       {"h-rounded-to-bf16", "h is rounded to bf16 although fp32 is declared",
        "low-precision-intermediate", "vLLM #38686"}},
      {Fault::kHTruncatedToBf16,
       {"h-truncated-to-bf16", "h is truncated to bf16 although fp32 is declared",
        "low-precision-intermediate", "design"}},
      {Fault::kHNotZeroed,
       {"h-not-zeroed", "h is added to what was there before", "unused-memory-read", "design"}},
      {Fault::kAddsOldHUnlessNan,
       {"adds-old-h-unless-nan", "h is added to what was there before, unless that is NaN", "",
        "design", Part::kNone, true}},
      {Fault::kGivenHOverwritten,
       {"given-h-overwritten", "shrink overwrites an h that it is to add to", "missing-add",
        "vLLM's add_shrink"}},
      {Fault::kGivenHLostAtZeroSum,
       {"given-h-lost-at-zero-sum", "an h that shrink is to add to becomes 0 where the sum is 0",
        "", "design", Part::kUneven, true}},
      {Fault::kGivenHOfZeroKept,
       {"given-h-of-zero-kept", "nothing is added to a given h where it is 0", "lost-columns",
        "design", Part::kUneven}},
      {Fault::kHOfFirstSlice,
       {"h-of-first-slice", "every slice expands the h of the first", "", "design"}},
      {Fault::kCastDeclaredAlone,
       {"cast-declared-alone", "h is declared to be cast to the dtype of B and is not",
        "rounding-not-done", "design", Part::kExact}},
  };
}

FaultEntries expand_faults() {
  return {
      {Fault::kRankLaneLost,
       {"rank-lane-lost", "the last rank lane is left out", "lost-rank-lane", "design"}},
      {Fault::kRank32Halved,
       {"rank-32-halved", "at rank 32 only the first 16 lanes are used", "lost-rank-lane",
        "LoRAX #70"}},
      {Fault::kPaddingLanesRead,
       {"padding-lanes-read", "lanes above an adapter's rank are read", "unused-memory-read",
        "vLLM #31994"}},
      {Fault::kRankZeroReadsLaneZero,
       {"rank-zero-reads-lane-zero", "an adapter of rank 0 uses one lane", "base-rows-written",
        "design"}},
      {Fault::kRanksOfRecording,
       {"ranks-of-recording", "adapters keep the ranks that they had when it was recorded",
        "state-left", "design", Part::kRelations}},
      {Fault::kPitchOfLargestRank,
       {"pitch-of-largest-rank",
        "rows of B are as long as the largest rank in multiples of 8, not as their room", "",
        "design", Part::kRelations}},
      {Fault::kDeltaRounded,
       {"delta-rounded", "delta is rounded to the output type before it is added", "rounded-delta",
        "design"}},
      {Fault::kDeltaTwice, {"delta-twice", "delta is added twice", "double-add", "design"}},
      {Fault::kYOverwritten,
       {"y-overwritten", "y is overwritten, not added to", "missing-add", "design"}},
      {Fault::kOverwriteSkipped,
       {"overwrite-skipped", "nothing is written where y is to be overwritten", "stale-output",
        "design"}},
      {Fault::kOverwrittenTimesZero,
       {"overwritten-times-zero", "0 times y is added where y is to be overwritten",
        "unused-memory-read", "design"}},
      {Fault::kAddsOldYUnlessNan,
       {"adds-old-y-unless-nan", "y that is to be overwritten is added to, unless it is NaN",
        "unasked-add", "design", Part::kUneven}},
      {Fault::kIdleRowsKept,
       {"idle-rows-kept", "rows that no adapter acts on keep y where they are to be zeroed",
        "stale-output", "SGLang's output of zeros"}},
      {Fault::kIdleRowsKeptUnlessNan,
       {"idle-rows-kept-unless-nan", "a row that no adapter acts on keeps y unless that is NaN",
        "stale-output", "design", Part::kUneven}},
      {Fault::kRankZeroRowsKept,
       {"rank-zero-rows-kept", "the same of rows whose adapter has rank 0 alone", "stale-output",
        "design"}},
      {Fault::kYTwice, {"y-twice", "what was in y counts twice", "double-add", "design"}},
      {Fault::kFp16Saturates,
       {"fp16-saturates", "what fp16 cannot hold is its largest number, not infinite", "", "design",
        Part::kRelations}},
      {Fault::kYTruncated,
       {"y-truncated", "y is cut to the output type, not rounded", "truncated-result", "design"}},
  };
}

FaultEntries bias_faults() {
  return {
      {Fault::kBiasForgotten,
       {"bias-forgotten", "the bias is not added", "bias-forgotten", "design"}},
      {Fault::kBiasTwice, {"bias-twice", "the bias is added twice", "double-bias", "design"}},
      {Fault::kBiasScaled,
       {"bias-scaled", "the scale is applied to the bias too", "bias-scaled", "design"}},
      {Fault::kBiasRoundedApart,
       {"bias-rounded-apart", "y + bias is rounded before delta is added, and nobody declares it",
        "", "vLLM's _apply_bias", Part::kNone, true}},
      {Fault::kBiasDeclaredApart,
       {"bias-declared-apart", "the bias is declared to be added after delta and is added with it",
        "rounding-not-done", "design", Part::kExact}},
      {Fault::kBiasWhereNoneIs,
       {"bias-where-none-is", "a slice without a bias adds that of the first slice that has one",
        "", "design", Part::kNone, true}},
      {Fault::kRankZeroBiasForgotten,
       {"rank-zero-bias-forgotten", "an adapter of rank 0 adds no bias, though it has one",
        "zero-delta", "vLLM's _apply_bias"}},
      {Fault::kBiasOnBaseRows,
       {"bias-on-base-rows", "rows without adapter get the bias of the first active one",
        "base-rows-written", "design"}},
  };
}

FaultEntries column_faults() {
  return {
      {Fault::kColumnShifted,
       {"column-shifted", "every column holds its left neighbour's value", "column-shift",
        "design"}},
      {Fault::kSlicesSwapped,
       {"slices-swapped", "the last two slices of one width change places", "slices-swapped",
        "design"}},
      {Fault::kSlicesSplitEqually,
       {"slices-split-equally", "slices start at equal distances, whatever their widths",
        "column-shift", "TensorRT-LLM #8063"}},
      {Fault::kZeroWidthShifts,
       {"zero-width-shifts", "a slice of width 0 moves the next ones by one column", "column-shift",
        "SGLang #24239"}},
      {Fault::kOffsetStartIgnored,
       {"offset-start-ignored", "the first slice starts at column 0", "column-shift", "design"}},
      {Fault::kOddColumnsLost,
       {"odd-columns-lost", "columns beyond whole blocks of 16 are left out", "lost-columns",
        "vLLM #3793, #4708"}},
      {Fault::kFirstColumnUnwritten,
       {"first-column-unwritten", "the first column of every slice is never written",
        "lost-columns", "design"}},
      {Fault::kYStrideIgnored,
       {"y-stride-ignored", "rows of y are taken to be contiguous", "written-outside", "design"}},
  };
}

FaultEntries memory_faults() {
  return {
      {Fault::kColumnsOutsideWritten,
       {"columns-outside-written", "columns that no slice owns are set to 0", "written-outside",
        "design"}},
      {Fault::kLanesAboveRankAddedTo,
       {"lanes-above-rank-added-to", "1 is added to lanes of a given h at or above the rank",
        "written-outside", "design", Part::kUneven}},
      {Fault::kBaseRowsOfHAddedTo,
       {"base-rows-of-h-added-to", "1 is added to a given h in rows without an adapter",
        "base-rows-written", "design", Part::kUneven}},
      {Fault::kOnePastTheEnd,
       {"one-past-the-end", "one element after the output is written", "written-outside", "design",
        Part::kMemory}},
      {Fault::kOneBeforeTheStart,
       {"one-before-the-start", "one element before the output is written", "written-outside",
        "design", Part::kMemory}},
      {Fault::kRowTooMany,
       {"row-too-many", "a padded row after the last one is written", "written-outside",
        "vLLM #51122, #48862", Part::kMemory}},
      {Fault::kHPastTheEnd,
       {"h-past-the-end", "a padded row after the last one of h is written", "written-outside",
        "vLLM #48862", Part::kMemory}},
      {Fault::kXChanged,
       {"x-changed", "a row of x without adapter is used as scratch space", "input-changed",
        "design", Part::kMemory}},
      {Fault::kWeightsChanged,
       {"weights-changed", "a weight is overwritten", "input-changed", "design"}},
      {Fault::kMemoryKept,
       {"memory-kept", "every launch allocates and never frees", "memory-kept", "design",
        Part::kRelations}},
      {Fault::kMappingKept,
       {"mapping-kept", "every launch maps a page and never unmaps it", "memory-kept", "design",
        Part::kRelations}},
      {Fault::kDescriptorKept,
       {"descriptor-kept", "every launch opens a file and never closes it", "memory-kept", "design",
        Part::kRelations}},
      {Fault::kMemoryKeptWhenAsked,
       {"memory-kept-when-asked", "`supports` allocates and never frees", "memory-kept", "design",
        Part::kRelations}},
      {Fault::kMappingKeptWhenAsked,
       {"mapping-kept-when-asked", "`supports` maps a page and never unmaps it", "memory-kept",
        "design", Part::kRelations}},
      {Fault::kDescriptorKeptWhenAsked,
       {"descriptor-kept-when-asked", "`supports` opens a file and never closes it", "memory-kept",
        "design", Part::kRelations}},
  };
}

FaultEntries put_back_faults() {
  return {
      {Fault::kXPutBack,
       {"x-put-back", "a row of x is scratch space, and is put back", "input-changed", "design",
        Part::kMemory}},
      {Fault::kWeightsPutBack,
       {"weights-put-back", "a weight is overwritten, and is put back", "input-changed", "design",
        Part::kMemory}},
      {Fault::kPlanPutBack,
       {"plan-put-back", "an adapter id is overwritten, and is put back", "input-changed", "design",
        Part::kMemory}},
      {Fault::kScalePutBack,
       {"scale-put-back", "a scale is overwritten, and is put back", "input-changed", "design",
        Part::kMemory}},
      {Fault::kBeforeTheStartPutBack,
       {"before-the-start-put-back", "what lies before the output is overwritten, and is put back",
        "written-outside", "design", Part::kMemory}},
      {Fault::kFarPastTheEndPutBack,
       {"far-past-the-end-put-back",
        "what lies a page behind the output is overwritten, and is put back", "written-outside",
        "design", Part::kMemory}},
  };
}

// All declare 16 partial sums in bf16, which no exact level can judge.
FaultEntries loose_faults() {
  return {
      {Fault::kLooseRow,
       {"loose-row", "declared loosely, the delta of one row is 20 % too large", "wrong-scale",
        "design"}},
      {Fault::kLooseDelta,
       {"loose-delta", "declared loosely, every delta is 20 % too small", "wrong-scale", "design"}},
      {Fault::kLooseColumn,
       {"loose-column", "declared loosely, every eighth column of delta is 25 % too large", "",
        "design"}},
      {Fault::kLooseNoise,
       {"loose-noise", "declared loosely, deltas are up to 20 % off, each by another share", "",
        "design"}},
      {Fault::kLooseScale,
       {"loose-scale", "declared loosely, the scale is 15 % too large", "wrong-scale", "design"}},
      {Fault::kLooseLaneLost,
       {"loose-lane-lost", "declared loosely, the last rank lane is left out", "lost-rank-lane",
        "design"}},
      {Fault::kLooseKTailLost,
       {"loose-k-tail-lost", "declared loosely, the last 32 elements of sums over K are left out",
        "lost-k-tail", "design"}},
      {Fault::kLooseSliceLess,
       {"loose-slice-less", "declared loosely, the delta of the last slice is 20 % too small", "",
        "design"}},
  };
}

FaultEntries all_faults() {
  FaultEntries all;
  for (const FaultEntries& part :
       {row_faults(), lane_sum_faults(), faults_of_h(), expand_faults(), bias_faults(),
        column_faults(), memory_faults(), put_back_faults(), size_faults(), value_faults(),
        weight_faults(), activation_faults(), expert_faults(), loose_faults()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace

float loose_factor(Fault fault, const DeltaAt& at, std::int64_t slices) {
  switch (fault) {
    case Fault::kLooseRow:
      return at.token == at.operands.token_order[0] ? 1.2F : 1;
    case Fault::kLooseDelta:
      return 0.8F;
    case Fault::kLooseColumn:
      return at.column % 8 == 3 ? 1.25F : 1;
    case Fault::kLooseNoise:
      return 1 +
             static_cast<float>((at.token * 31 + at.column * 17 + at.slice * 7) % 41 - 20) / 100;
    case Fault::kLooseSliceLess:
      return at.slice == slices - 1 ? 0.8F : 1;
    default:
      return 1;
  }
}

const std::vector<FaultEntry>& fault_catalogue() {
  static const FaultEntries kEntries = all_faults();
  return kEntries;
}

}  // namespace lora_bench
