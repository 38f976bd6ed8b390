#include "verify/mutants.h"

namespace lora_bench {
namespace {

using Entries = std::vector<GpuFaultEntry>;
using Gpu = kernels::MutantFault;

Entries tile_faults() {
  return {
      {Gpu::kPartialTileLost,
       {"gpu-partial-tile", "the last tile of a group is dropped unless it is full", "zero-delta",
        "design"}},
      {Gpu::kPartialTileRowLost,
       {"gpu-partial-tile-row", "the last row of a partial tile is dropped", "zero-delta",
        "design"}},
      {Gpu::kLastTileLost,
       {"gpu-early-exit", "a block leaves one tile too early: the last tile of every group is lost",
        "zero-delta", "design"}},
      {Gpu::kGridOneTileShort,
       {"gpu-grid-tile-short", "the grid is one row tile short for the largest group", "zero-delta",
        "design"}},
      {Gpu::kGridOneGroupShort,
       {"gpu-grid-group-short", "the grid is one group short", "zero-delta", "SGLang #28371"}},
      {Gpu::kEdgeOneRowLate,
       {"gpu-edge-late", "at a group edge the first row goes with the adapter before",
        "wrong-adapter", "design"}},
      {Gpu::kEdgeOneRowEarly,
       {"gpu-edge-early", "at a group edge the last row goes with the next adapter",
        "wrong-adapter", "design"}},
      {Gpu::kRowTooManyInShrink,
       {"gpu-row-too-many-shrink", "a partial tile sums one row too many into h of the next group",
        "", "vLLM #51122"}},
      {Gpu::kRowTooManyInExpand,
       {"gpu-row-too-many-expand", "a partial tile writes one row too many of y, late", "",
        "vLLM #51122"}},
      {Gpu::kLastSlotIsNone,
       {"gpu-last-slot", "the last slot is treated as no adapter", "zero-delta", "design"}},
      {Gpu::kNoneIsFirstAdapter,
       {"gpu-base-rows", "rows without adapter are one more group, of the first adapter",
        "base-rows-written", "TensorRT-LLM #2096"}},
      {Gpu::kGroupIndexAsAdapter,
       {"gpu-grid-index-as-adapter", "the index in the grid is taken for the id of the adapter",
        "unused-memory-read", "design"}},
      {Gpu::kRankOfFirstGroup,
       {"gpu-rank-of-first", "every group has the rank of the first", "", "design"}},
      {Gpu::kFirstGroupSkipped,
       {"gpu-first-group-skipped", "if a row has no adapter, the first group is skipped",
        "zero-delta", "vLLM #32235, SGLang #5928"}},
      {Gpu::kOrderIgnored,
       {"gpu-order-ignored", "adapters come in sorted order, rows in that of the batch",
        "wrong-adapter", "vLLM #15979"}},
      {Gpu::kPaddingIsTokenZero,
       {"gpu-padding-is-token-0", "the padding of a partial tile is added to h of row 0", "",
        "vLLM #32279"},
       Level::kExact,
       "idle-slots"},
  };
}

Entries shrink_faults() {
  return {
      {Gpu::kKTailLost,
       {"gpu-k-tail", "a stage of K that is not full is dropped", "lost-k-tail", "design"}},
      {Gpu::kLastOfKLost,
       {"gpu-last-of-k", "the last element of every sum over K is left out", "lost-k-tail",
        "design"}},
      {Gpu::kKTailNotCleared,
       {"gpu-k-tail-not-cleared", "a stage of K that is not full reads what lies behind the rows",
        "unused-memory-read", "design"}},
      {Gpu::kLanesBeyondTileLost,
       {"gpu-lanes-beyond-16", "lanes beyond the first tile of 16 are dropped", "lost-rank-lane",
        "LoRAX #70"},
       Level::kExact,
       "rank-32-scale-at-expand"},
      {Gpu::kShuffleOfThirtyOne,
       {"gpu-shuffle-of-31", "the sum of a warp misses one of its 32 threads", "", "design"}},
      {Gpu::kPartLost,
       {"gpu-part-lost", "the second part of split K is never added", "lost-k-tail", "design"}},
      {Gpu::kPartTwice,
       {"gpu-part-twice", "the first part of split K is added twice", "", "design"}},
      {Gpu::kPlainAdd,
       {"gpu-plain-add", "parts of K are added without atomics, so that one of two is lost", "",
        "design"}},
      {Gpu::kBf16Partials,
       {"gpu-bf16-partials", "a part of K is rounded to bf16 before it is added",
        "low-precision-partials", "design"}},
      {Gpu::kFp16Partials,
       {"gpu-fp16-partials", "a part of K is rounded to fp16 before it is added, and may overflow",
        "low-precision-partials", "design"}},
      {Gpu::kBf16RunningSum,
       {"gpu-bf16-running-sum", "parts of K are added up in bf16, as by bf16 atomics",
        "low-precision-partials", "design"}},
      {Gpu::kUnalignedRoundedDown,
       {"gpu-unaligned-vector", "the address of x is rounded down to that of a 16-byte vector",
        "unused-memory-read", "design", Part::kShifted}},
      {Gpu::kAIndexWraps,
       {"gpu-a-index-wraps", "slot times rank times K overflows at 2048 and starts again", "",
        "vLLM #53028"}},
      {Gpu::kAOfNextSlice,
       {"gpu-a-of-next-slice", "every slice multiplies with A of the next one", "", "design"}},
      {Gpu::kOrderVariesByRun,
       {"gpu-order-by-run", "partial sums meet in another order in every second launch",
        "not-repeatable", "vLLM #50059", Part::kRelations},
       Level::kRelations,
       "shrink-fp32"},
      {Gpu::kOrderVariesByBatch,
       {"gpu-order-by-batch", "partial sums meet in another order when a row is alone",
        "depends-on-batch", "vLLM #30097", Part::kRelations},
       Level::kRelations,
       "shrink-fp32"},
      {Gpu::kFillBarrierLost,
       {"gpu-fill-barrier", "no barrier between filling a tile of A and reading it", "", "design"}},
      {Gpu::kRefillBarrierLost,
       {"gpu-refill-barrier", "no barrier between reading a tile of A and filling it again", "",
        "design"}},
  };
}

Entries hidden_faults() {
  return {
      {Gpu::kNotZeroed,
       {"gpu-not-zeroed", "h is not set to zero before parts are added", "unused-memory-read",
        "design"}},
      {Gpu::kZeroedFirstSliceOnly,
       {"gpu-zeroed-first-slice", "h is set to zero for the first slice alone",
        "unused-memory-read", "design"}},
      {Gpu::kZeroedFirstTileOnly,
       {"gpu-zeroed-first-tile", "h is set to zero for the first four rows alone",
        "unused-memory-read", "design"}},
      {Gpu::kZeroedAfterwards,
       {"gpu-zeroed-late", "h is set to zero after the parts were added", "", "design"}},
      {Gpu::kZeroedTooFar,
       {"gpu-zeroed-too-far", "setting h to zero goes on past its end", "written-outside",
        "vLLM #48862", Part::kMemory},
       Level::kMemory},
      {Gpu::kZeroNotRecorded,
       {"gpu-zero-not-recorded", "h is not set to zero in a graph, though graph safety is declared",
        "state-left", "design", Part::kRelations},
       Level::kRelations},
      {Gpu::kHAsBf16,
       {"gpu-h-as-bf16", "a tile of h is rounded to bf16 although fp32 is declared",
        "low-precision-intermediate", "vLLM #38686"}},
      {Gpu::kHTruncated,
       {"gpu-h-truncated", "a tile of h is truncated to bf16 although fp32 is declared",
        "low-precision-intermediate", "design"}},
      {Gpu::kHAsTf32,
       {"gpu-h-as-tf32", "a tile of h is cut to tf32 although fp32 is declared", "", "design"}},
      {Gpu::kHOfNeighbour,
       {"gpu-h-of-neighbour", "every row of a tile expands h of the next one", "neighbour-row",
        "design"}},
      {Gpu::kHOfFirstSlice,
       {"gpu-h-of-first-slice", "every slice expands h of the first", "", "design"}},
      {Gpu::kHPackedByRank,
       {"gpu-h-packed", "rows of h are taken to be as long as the rank of the adapter", "",
        "design"}},
      {Gpu::kStaleHForBase,
       {"gpu-stale-h-for-base", "rows without adapter expand what their h holds from before",
        "base-rows-written", "vLLM #42008"}},
      {Gpu::kRankTailLost,
       {"gpu-rank-tail", "lanes beyond whole vectors of four are dropped", "", "design"}},
      {Gpu::kLastLaneLost,
       {"gpu-last-lane", "the last lane of every rank is left out", "lost-rank-lane", "design"}},
      {Gpu::kRankPaddingRead,
       {"gpu-rank-padding", "lanes up to the largest rank are added, whatever the rank",
        "unused-memory-read", "vLLM #31994"}},
      {Gpu::kBPackedByRank,
       {"gpu-b-packed", "rows of B are taken to be as long as the rank of the adapter", "",
        "design"}},
      {Gpu::kExpandBarrierLost,
       {"gpu-expand-barrier", "no barrier between filling a tile of B and reading it", "",
        "design"}},
      {Gpu::kAsyncCopyNotAwaited,
       {"gpu-async-copy", "asynchronous copies of h are not waited for", "", "design"}},
  };
}

Entries delta_faults() {
  return {
      {Gpu::kScaleSkipped,
       {"gpu-scale-skipped", "the scale is not applied", "missing-scale", "design"}},
      {Gpu::kScaleTwice,
       {"gpu-scale-twice", "the scale is applied twice", "double-scale", "design"}},
      {Gpu::kScaleTwoPercent,
       {"gpu-scale-two-percent", "the scale is 2 % too large", "wrong-scale", "design"}},
      {Gpu::kScaleAtBothEnds,
       {"gpu-scale-at-both", "shrink and expand both apply the scale", "double-scale", "design"}},
      {Gpu::kScaleOnOnePart,
       {"gpu-scale-on-one-part", "only the first part of K is scaled", "", "design"}},
      {Gpu::kScaleOfNextSlot,
       {"gpu-scale-of-next-slot", "the scale of the next slot is applied", "wrong-scale",
        "design"}},
      {Gpu::kBiasSkipped,
       {"gpu-bias-skipped", "the bias is not added", "bias-forgotten", "design"}},
      {Gpu::kBiasTwice, {"gpu-bias-twice", "the bias is added twice", "double-bias", "design"}},
      {Gpu::kBiasOnBaseRows,
       {"gpu-bias-on-base-rows", "rows without adapter get the bias of the first active one",
        "base-rows-written", "design"}},
      {Gpu::kBiasOfFirstSlice,
       {"gpu-bias-of-first-slice", "every slice adds the bias of the first", "", "design"}},
      {Gpu::kInputsIgnored,
       {"gpu-inputs-ignored", "y is overwritten where it is to be added to", "missing-add",
        "design"}},
      {Gpu::kInputsAlwaysAdded,
       {"gpu-inputs-always-added", "y is added to where it is to be overwritten", "", "design"},
       Level::kExact,
       "overwrite"},
      {Gpu::kDeltaRounded,
       {"gpu-delta-rounded", "delta is rounded to the output type before it is added",
        "rounded-delta", "design"}},
      {Gpu::kDeltaTwice, {"gpu-delta-twice", "delta is added twice", "double-add", "design"}},
      {Gpu::kYTruncated,
       {"gpu-y-truncated", "y is truncated to the output type, not rounded", "truncated-result",
        "design"}},
      {Gpu::kExpandTwice, {"gpu-expand-twice", "expand is launched twice", "", "design"}},
  };
}

Entries place_faults() {
  return {
      {Gpu::kColumnTailLost,
       {"gpu-column-tail", "columns beyond whole tiles of 32 are dropped", "lost-columns",
        "vLLM #3793"}},
      {Gpu::kOddColumnTwice,
       {"gpu-odd-column-twice",
        "the last column of an odd width is taken for a pair, and added twice", "", "design"}},
      {Gpu::kColumnShifted,
       {"gpu-column-shifted", "every column stands one place to the right", "column-shift",
        "design"}},
      {Gpu::kSlicesSwapped,
       {"gpu-slices-swapped", "the last two slices of one width change places", "slices-swapped",
        "design"}},
      {Gpu::kSlicesAtEqualDistances,
       {"gpu-slices-equal", "slices start at equal distances, whatever their widths", "",
        "TensorRT-LLM #8063"}},
      {Gpu::kYIndexWraps,
       {"gpu-y-index-wraps", "row times stride overflows at 1024 and starts again", "",
        "vLLM #39585"}},
      {Gpu::kPastTheSlice,
       {"gpu-past-the-slice", "one column past the last slice is written", "written-outside",
        "design"}},
      {Gpu::kPastTheEnd,
       {"gpu-past-the-end", "one element past the end of y is written", "written-outside", "design",
        Part::kMemory},
       Level::kMemory},
      {Gpu::kBeforeTheStart,
       {"gpu-before-the-start", "one element before the start of y is written", "written-outside",
        "design", Part::kMemory},
       Level::kMemory},
      {Gpu::kXAsScratch,
       {"gpu-x-as-scratch", "x is used as scratch space", "input-changed", "design"},
       Level::kMemory},
  };
}

Entries launch_faults() {
  return {
      {Gpu::kStalePlan,
       {"gpu-stale-plan", "a launch reads the plan of the launch before", "state-left",
        "vLLM #34119, SGLang #28371", Part::kRelations},
       Level::kRelations},
      {Gpu::kCapturedX,
       {"gpu-captured-x", "x of the first launch is read by all later ones", "", "design"},
       Level::kBounded},
      {Gpu::kCapturedY,
       {"gpu-captured-y", "later launches write where a copy of y was kept", "zero-delta",
        "design"}},
      {Gpu::kStaleY,
       {"gpu-stale-y", "later launches add to the y that the first one found", "", "design"},
       Level::kBounded},
      {Gpu::kNothingLaunched, {"gpu-no-launch", "nothing is launched", "zero-delta", "design"}},
      {Gpu::kSkippedFromThird,
       {"gpu-skipped-from-third", "from the third launch on nothing is launched", "zero-delta",
        "design"},
       Level::kBounded},
      {Gpu::kOtherStream,
       {"gpu-other-stream", "shrink runs on a stream that expand does not wait for",
        "unused-memory-read", "SGLang #31870"}},
  };
}

Entries gpu_size_faults() {
  const auto wrong = [](Gpu fault, const char* name, const char* sizes, const char* seen_in) {
    return GpuFaultEntry{fault,
                         {name, std::string(sizes) + ": every sum over K is a quarter too large",
                          "wrong-scale", "design"},
                         Level::kExact,
                         seen_in};
  };
  return {
      wrong(Gpu::kWrongFrom513Tokens, "gpu-wrong-from-513-tokens", "513 to 1000 tokens",
            "700-tokens"),
      wrong(Gpu::kWrongFrom1001Tokens, "gpu-wrong-from-1001-tokens", "more than 1000 tokens",
            "2500-tokens"),
      wrong(Gpu::kWrongBeyond1024Slots, "gpu-wrong-beyond-1024-slots", "more than 1024 slots",
            "1100-slots"),
      wrong(Gpu::kWrongBeyondRank512, "gpu-wrong-beyond-rank-512", "ranks above 512", "rank-700"),
  };
}

Entries gpu_value_faults() {
  const auto fault = [](Gpu gpu, const char* name, const char* meaning, const char* hypothesis,
                        Part alone, const char* seen_in = "packed-bias-base-rows") {
    return GpuFaultEntry{
        gpu, {name, meaning, hypothesis, "design", alone}, Level::kBounded, seen_in};
  };
  return {
      fault(Gpu::kXSaturatesAt448, "gpu-x-saturates-at-448",
            "x beyond 448, the largest of e4m3, is taken as 448 by a tile", "", Part::kNone),
      fault(Gpu::kWeightsSaturateAt448, "gpu-weights-saturate-at-448",
            "A and B beyond 448, the largest of e4m3, are taken as 448 by a tile", "", Part::kNone,
            "rank-32-scale-at-expand"),
      {Gpu::kYSaturatesAt65504,
       {"gpu-y-saturates-at-65504", "y beyond 65504, the largest of fp16, is stored as that", "",
        "design"}},
      fault(Gpu::kXFlushesSubnormals, "gpu-x-flushes-subnormals",
            "x below the normal numbers of fp16 is taken as 0 by a tile", "", Part::kUneven,
            "fp16"),
      fault(Gpu::kNegativeZeroEndsStage, "gpu-negative-zero-ends-stage",
            "a stage of K with a -0 of x is left out", "", Part::kUneven),
      fault(Gpu::kZeroYSkipped, "gpu-zero-y-skipped", "a thread adds nothing where y is 0",
            "lost-columns", Part::kUneven),
      fault(Gpu::kZeroHEndsRank, "gpu-zero-h-ends-rank",
            "a thread ends its sum over the rank at the first h of 0", "", Part::kNone),
      fault(Gpu::kZeroSumUnwritten, "gpu-zero-sum-unwritten",
            "a thread writes nothing where its sum is 0, bias and all", "lost-columns",
            Part::kUneven),
  };
}

}  // namespace

const std::vector<GpuFaultEntry>& gpu_fault_catalogue() {
  static const Entries kCatalogue = [] {
    Entries all;
    for (Entries (*part)() : {tile_faults, shrink_faults, hidden_faults, delta_faults, place_faults,
                              launch_faults, gpu_size_faults, gpu_value_faults}) {
      const Entries entries = part();
      all.insert(all.end(), entries.begin(), entries.end());
    }
    return all;
  }();
  return kCatalogue;
}

}  // namespace lora_bench
