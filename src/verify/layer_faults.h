#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "layers/layer_engine.h"
#include "layers/layer_problem.h"

namespace lora_bench {

// What a sharded layer can get wrong. Each is a mutant that the proof must catch, and a hypothesis
// that a wrong result is held against.
enum class LayerFault : std::uint8_t {
  kNone,
  kBaseOfNextShard,
  kKvReplicationIgnored,
  kHeadsOfVAsWideAsOfK,
  kBiasInEveryTerm,
  kBiasForgotten,
  kBiasOfFirstShard,
  kSkippedBiasAdded,
  kColumnsGatheredBackwards,
  kColumnsNotGathered,
  kColumnsShardByShard,
  kSharedHeadsGatheredTwice,
  kLogitsNotReordered,
  kDeltaNotReordered,
  kPaddingKept,
  kCapForgotten,
  kLogitScaleForgotten,
  kIdsNotMasked,
  kLanesByIdInShard,
  kAddedRowsLost,
  kAddedRowsOfFirstSlot,
  kAddedRowsInEveryShard,
  kTermLost,
  kTermsNotSummed,
  kKeptTermsSummed,
  kNoneRowsTakeFirst,
  kDeltaLost,
  kDeltaInsteadOfBase,
  kDeltaInEveryTerm,
  kDeltaAtFirstColumn,
  kInputsOfFirstShard,
  kRowsOfNextShard,
  kJointRowsUncut,
  kBlocksSwapped,
  kMissingBlockShifts,
  kFirstBlockForAll,
  kPackedRowsOfFirst,
  kPackedRowsUncut,
  kLastBlockLost,
  kEmptyBlockDoublesNeighbour,
  kLanesNotGathered,
  kLanesGatheredBackwards,
  kLanesNotSummed,
  kLanesOfOwnRank,
  kShortAdapterLost,
  kStaleSlot,
  kPaddingRead,
  kSlotOfNextAdapter,
  kScaleForgotten,
  kScaleTwice,
  kAdapterBiasForgotten,
  kAdapterBiasInEveryTerm,
  kAdapterBiasUncut,
  kWeightScalesForgotten,
  kWeightScalesOfFirstShard,
  kWeightScalesOfNextShard,
  kJointScalesUncut,
  kWeightScalesSwapped,
};

struct LayerFaultDoc {
  LayerFault fault = LayerFault::kNone;
  std::string_view key, meaning;
  std::string_view source;  // "design", or the public bug it stands for
};
// All but kNone, the most specific first.
[[nodiscard]] std::span<const LayerFaultDoc> layer_faults();

// What a layer was asked, with what its slots held before.
struct LayerStory {
  const LayerProblem& problem;
  const LayerTensors& tensors;
  const LayerTensors& before;
};
// The same layer whose slots all hold adapters of the highest rank that leave no output alone.
[[nodiscard]] LayerProblem earlier_problem(const LayerProblem& problem);
// What they held.
[[nodiscard]] LayerTensors draw_earlier_tensors(const LayerProblem& problem, Fill fill,
                                                std::uint64_t seed);

// What each shard ends with of these tokens, [shard][row * columns + column], by plain loops in
// fp64 that share nothing with the engine but how a layer is divided, and with one fault.
using ShardRows = std::vector<std::vector<double>>;
[[nodiscard]] ShardRows model_layer(const LayerStory& story, LayerFault fault,
                                    const std::vector<std::int64_t>& tokens);

// What becomes of logits in the model of a layer (layer_model.cpp), perhaps with a fault.

// Shard by shard, each with its padding: [row][order_of_gathered].
[[nodiscard]] std::vector<double> gathered_logits(const ShardedLayer& layer, const ShardRows& terms,
                                                  std::size_t rows, LayerFault fault);
// The same in order and without padding.
[[nodiscard]] std::vector<double> logits_in_order(const ShardedLayer& layer,
                                                  const std::vector<double>& gathered,
                                                  LayerFault fault);

// An adapter as its slot holds it.
struct HeldAdapter {
  AdapterWeights weights;
  std::int64_t rank = 0;
  double scale = 1;
};
// Of every slot, as the fault leaves it.
[[nodiscard]] std::vector<HeldAdapter> held_adapters(const LayerStory& story, LayerFault fault);

}  // namespace lora_bench
