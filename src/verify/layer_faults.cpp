#include "verify/layer_faults.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "core/dtype.h"
#include "verify/layer_proof.h"
#include "verify/oracle.h"

namespace lora_bench {

namespace {

using F = LayerFault;

constexpr std::array<LayerFaultDoc, 57> kDocs{{
    {F::kBiasForgotten, "bias-forgotten", "the base's bias is missing", "design"},
    {F::kBiasInEveryTerm, "bias-in-every-term", "every term of a sum has the base's bias",
     "design"},
    {F::kBiasOfFirstShard, "bias-of-first-shard", "every shard adds the bias of the first",
     "design"},
    {F::kSkippedBiasAdded, "skipped-bias-added",
     "a bias that is to be returned apart is added as well", "design"},
    {F::kKvReplicationIgnored, "kv-replication-ignored",
     "shards that share a kv head take the next one instead", "design"},
    {F::kHeadsOfVAsWideAsOfK, "heads-of-v-as-wide-as-of-k",
     "v is divided at heads as wide as those of k", "design"},
    {F::kBaseOfNextShard, "base-of-next-shard", "a shard has the base weights of the next",
     "design"},
    {F::kTermsNotSummed, "terms-not-summed", "shards keep their own term of y", "design"},
    {F::kKeptTermsSummed, "kept-terms-summed",
     "terms are summed that are to stay with their shards", "design"},
    {F::kTermLost, "term-lost", "the sum of y lacks the last shard", "design"},
    {F::kColumnsNotGathered, "columns-not-gathered",
     "a shard has its own columns alone where those of all are gathered", "design"},
    {F::kColumnsGatheredBackwards, "columns-gathered-backwards",
     "columns are gathered in another order than that of the ranks", "design"},
    {F::kColumnsShardByShard, "columns-shard-by-shard",
     "columns of several outputs are gathered shard by shard, not output by output", "design"},
    {F::kSharedHeadsGatheredTwice, "shared-heads-gathered-twice",
     "kv heads are gathered once from every shard that has them", "design"},
    {F::kLogitsNotReordered, "logits-not-reordered",
     "logits stay in the order in which they were gathered from the shards", "design"},
    {F::kDeltaNotReordered, "delta-not-reordered",
     "what the adapters add to logits is added before these are put in order", "design"},
    {F::kPaddingKept, "padding-kept",
     "padding of a vocabulary stands before what was added to it, and the end is cut off",
     "design"},
    {F::kCapForgotten, "cap-forgotten", "the soft cap of logits is not applied", "design"},
    {F::kLogitScaleForgotten, "logit-scale-forgotten", "the scale of logits is not applied",
     "design"},
    {F::kIdsNotMasked, "ids-not-masked",
     "a shard reads a row of its table for ids of other shards too", "design"},
    {F::kLanesByIdInShard, "lanes-by-id-in-shard",
     "A is read by the id in the shard's part of the vocabulary, not by that in the whole",
     "design"},
    {F::kAddedRowsLost, "added-rows-lost",
     "an id that an adapter added finds a row of zeros in the table", "design"},
    {F::kAddedRowsOfFirstSlot, "added-rows-of-first-slot",
     "ids that adapters added find the rows of the first slot", "design"},
    {F::kAddedRowsInEveryShard, "added-rows-in-every-shard",
     "every shard reads the row of an id that an adapter added", "design"},
    {F::kDeltaInsteadOfBase, "delta-instead-of-base",
     "what the adapters add overwrites the base where it is added", "design"},
    {F::kDeltaLost, "delta-lost",
     "the base was written over what the adapters added: a race of two streams", "SGLang #31870"},
    {F::kNoneRowsTakeFirst, "none-rows-take-first", "rows without adapter get the first adapter",
     "design"},
    {F::kStaleSlot, "stale-slot", "a slot that was reset still adds its last adapter", "design"},
    {F::kPaddingRead, "padding-read",
     "lanes above an adapter's rank are those of the adapter that the slot held before", "design"},
    {F::kScaleForgotten, "scale-forgotten", "the adapter's scale is not applied", "design"},
    {F::kScaleTwice, "scale-twice", "the adapter's scale is applied twice", "design"},
    {F::kAdapterBiasForgotten, "adapter-bias-forgotten", "the adapter's bias is missing", "design"},
    {F::kAdapterBiasInEveryTerm, "adapter-bias-in-every-term",
     "every term of a sum has the adapter's bias", "design"},
    {F::kAdapterBiasUncut, "adapter-bias-uncut",
     "every shard adds the first columns of the adapter's bias", "design"},
    {F::kDeltaInEveryTerm, "delta-in-every-term", "every term of a sum has the whole delta",
     "design"},
    {F::kDeltaAtFirstColumn, "delta-at-first-column",
     "a fully sharded row layer adds its share of the delta to the first columns", "design"},
    {F::kInputsOfFirstShard, "inputs-of-first-shard",
     "every shard of a row layer has A's columns of the first", "design"},
    {F::kEmptyBlockDoublesNeighbour, "empty-block-doubles-neighbour",
     "an output of no columns repeats the one before it", "SGLang #24239"},
    {F::kJointRowsUncut, "joint-rows-uncut", "B of several outputs is divided as if it were one",
     "TensorRT-LLM #8063"},
    {F::kBlocksSwapped, "blocks-swapped", "the first two outputs have changed their adapters",
     "design"},
    {F::kMissingBlockShifts, "missing-block-shifts",
     "where an adapter leaves an output alone, the next one's weights take its place", "design"},
    {F::kFirstBlockForAll, "first-block-for-all", "all outputs use A of the first", "design"},
    {F::kPackedRowsOfFirst, "packed-rows-of-first",
     "all outputs that a packed pair covers have the first rows of its B", "design"},
    {F::kPackedRowsUncut, "packed-rows-uncut",
     "B of a packed pair is divided as if it were of one output", "TensorRT-LLM #8063"},
    {F::kLastBlockLost, "last-block-lost", "the last output gets nothing from the adapters",
     "design"},
    {F::kRowsOfNextShard, "rows-of-next-shard", "a shard has B's rows of the next", "design"},
    {F::kLanesNotGathered, "lanes-not-gathered", "a shard expands its own lanes of h alone",
     "design"},
    {F::kLanesGatheredBackwards, "lanes-gathered-backwards",
     "lanes are gathered in another order than that of the ranks", "design"},
    {F::kLanesNotSummed, "lanes-not-summed", "a shard expands its own term of h alone", "design"},
    {F::kLanesOfOwnRank, "lanes-of-own-rank",
     "an adapter of a lower rank is divided by its own rank, not by that of the slots",
     "vLLM #31994"},
    {F::kShortAdapterLost, "short-adapter-lost",
     "an adapter with fewer lanes than all shards have is left out", "design"},
    {F::kSlotOfNextAdapter, "slot-of-next-adapter", "rows use the adapter of the next slot",
     "design"},
    {F::kWeightScalesForgotten, "weight-scales-forgotten",
     "weights of eight bits are taken without their scales", "design"},
    {F::kWeightScalesOfFirstShard, "weight-scales-of-first-shard",
     "every shard has the scales of the first one's weights", "design"},
    {F::kWeightScalesOfNextShard, "weight-scales-of-next-shard",
     "a shard has the scales of the next one's weights", "design"},
    {F::kJointScalesUncut, "joint-scales-uncut",
     "scales of a B for several outputs are divided as if it were of one", "design"},
    {F::kWeightScalesSwapped, "weight-scales-swapped",
     "the first two outputs have each other's scales", "vLLM's lora_expand_fp8"},
}};

}  // namespace

std::span<const LayerFaultDoc> layer_faults() { return kDocs; }

LayerProblem earlier_problem(const LayerProblem& problem) {
  LayerProblem earlier = problem;
  earlier.missing_slices = false;
  earlier.missing.clear();
  std::fill(earlier.lora.rank.begin(), earlier.lora.rank.end(), problem.lora.max_rank);
  return earlier;
}

LayerTensors draw_earlier_tensors(const LayerProblem& problem, Fill fill, std::uint64_t seed) {
  constexpr std::uint64_t kEarlierSeed = 0x4541524c;  // "EARL"
  LayerProblem earlier = earlier_problem(problem);    // whose base stays as it is
  // A row of each slot, so that all of them hold numbers.
  std::vector<std::int32_t> ids(static_cast<std::size_t>(problem.lora.slots));
  for (std::size_t slot = 0; slot < ids.size(); ++slot) {
    ids[slot] = static_cast<std::int32_t>(slot);
  }
  earlier.lora.tokens = problem.lora.slots;
  earlier.lora.plan = make_plan(ids, problem.lora.slots);
  LayerTensors tensors;
  tensors.lora = draw_tensors(earlier.lora, fill, seed ^ kEarlierSeed);
  if (problem.layer.extra > 0) {
    tensors.w = draw_layer_tensors(earlier, fill, seed ^ kEarlierSeed).w;
  }
  return tensors;
}

std::vector<double> gathered_logits(const ShardedLayer& layer, const ShardRows& terms,
                                    std::size_t rows, LayerFault fault) {
  const std::size_t columns = order_of_gathered(layer).size();
  const std::size_t width = columns / terms.size();
  std::vector<double> whole(rows * columns);
  for (std::size_t rank = 0; rank < terms.size(); ++rank) {
    const std::size_t own = terms[rank].size() / rows;
    const bool backwards = fault == LayerFault::kColumnsGatheredBackwards;
    const std::size_t place = backwards ? terms.size() - 1 - rank : rank;
    for (std::size_t row = 0; row < rows; ++row) {
      for (std::size_t column = 0; column < std::min(own, width); ++column) {
        whole[row * columns + place * width + column] = terms[rank][row * own + column];
      }
    }
  }
  return whole;
}

std::vector<double> logits_in_order(const ShardedLayer& layer, const std::vector<double>& gathered,
                                    LayerFault fault) {
  const std::vector<std::int64_t> order = order_of_gathered(layer);
  const std::int64_t columns =
      std::accumulate(layer.widths.begin(), layer.widths.end(), std::int64_t{0});
  const std::int64_t padding = static_cast<std::int64_t>(order.size()) - columns;
  std::vector<double> logits(gathered.size() / order.size() * static_cast<std::size_t>(columns));
  for (std::size_t i = 0; i < gathered.size(); ++i) {
    const std::size_t row = i / order.size();
    const std::size_t at = i % order.size();
    std::int64_t place = order[at];
    if (fault == LayerFault::kLogitsNotReordered) {
      place = static_cast<std::int64_t>(at);
    } else if (fault == LayerFault::kPaddingKept && place >= layer.widths[0]) {
      place = place < columns ? place + padding : place - columns + layer.widths[0];
    }
    if (place < columns) {
      logits[row * static_cast<std::size_t>(columns) + static_cast<std::size_t>(place)] =
          gathered[i];
    }
  }
  return logits;
}

namespace {

// Products of the base for one prediction; there are as many predictions as faults.
constexpr std::int64_t kMostLayerProducts = std::int64_t{1} << 24;

std::int64_t products(const LayerProblem& problem, std::size_t rows) {
  const bool repeated = description_of(problem.layer.kind).base == Cut::kNone;
  return static_cast<std::int64_t>(rows) * problem.columns() * problem.layer.in_features *
         (repeated ? problem.layer.tp : 1);
}

struct Fit {
  bool with_got = true;
  bool with_expected = true;  // the fault changes nothing here
};

// A prediction is as good as the bound of the right result says, and a fault may enlarge that.
Fit fit_of(const LayerStory& story, const reference::LayerRows& oracle, const ShardOutputs& got,
           const ShardRows& predicted) {
  Fit fit;
  const reference::Number number = number_of(story.problem.lora.dtype[Role::kY]);
  for (std::size_t rank = 0; rank < got.size(); ++rank) {
    const std::vector<std::int64_t> columns =
        columns_of_output(story.problem.layer, static_cast<std::int64_t>(rank));
    for (std::size_t row = 0; row < oracle.rows.tokens.size(); ++row) {
      for (std::size_t column = 0; column < columns.size(); ++column) {
        const std::size_t of_whole =
            oracle.place(static_cast<std::int64_t>(rank), row, columns[column]);
        const double value =
            load(got[rank].dtype, got[rank].data.data(),
                 oracle.rows.tokens[row] * got[rank].columns + static_cast<std::int64_t>(column));
        const double guess = predicted[rank][row * columns.size() + column];
        const double room = 2 * oracle.rows.bound[of_whole] + 2 * reference::spacing(number, guess);
        const auto near = [room](double one, double other) {
          return std::fabs(one - other) <= room || (std::isnan(one) && std::isnan(other));
        };
        fit.with_got = fit.with_got && near(value, guess);
        fit.with_expected = fit.with_expected && near(oracle.rows.expected[of_whole], guess);
      }
    }
  }
  return fit;
}

}  // namespace

Hypothesis diagnose_layer(const LayerStory& story, const reference::LayerRows& oracle,
                          const ShardOutputs& got) {
  if (products(story.problem, oracle.rows.tokens.size()) > kMostLayerProducts) {
    return {};
  }
  for (const LayerFaultDoc& doc : layer_faults()) {
    const Fit fit = fit_of(story, oracle, got, model_layer(story, doc.fault, oracle.rows.tokens));
    if (fit.with_got && !fit.with_expected) {
      return {std::string(doc.key), std::string(doc.meaning)};
    }
  }
  return {};
}

namespace {

// What the slots of a shard hold.
class Slots {
 public:
  Slots(const LayerStory& story, LayerFault fault)
      : problem_(story.problem), tensors_(story.tensors), before_(story.before), fault_(fault) {}

  [[nodiscard]] HeldAdapter adapter_at(std::int64_t slot) const {
    if (is(LayerFault::kSlotOfNextAdapter)) {
      slot = (slot + 1) % problem_.lora.slots;
    }
    HeldAdapter loaded;
    loaded.rank = problem_.lora.rank[static_cast<std::size_t>(slot)];
    loaded.scale = tensors_.lora.scale[static_cast<std::size_t>(slot)];
    loaded.weights = fit_weights(problem_.layer, adapter_of(problem_, tensors_, slot));
    const AdapterWeights held =
        fit_weights(problem_.layer, adapter_of(earlier_problem(problem_), before_, slot));
    if (is(LayerFault::kStaleSlot) && loaded.rank == 0) {
      return {held, problem_.lora.max_rank, before_.lora.scale[static_cast<std::size_t>(slot)]};
    }
    if (is(LayerFault::kPaddingRead) && loaded.rank > 0) {
      read_padding(loaded, held);
    }
    if (is(LayerFault::kScaleForgotten)) {
      loaded.scale = 1;
    } else if (is(LayerFault::kScaleTwice)) {
      loaded.scale *= loaded.scale;
    }
    break_blocks(loaded.weights);
    return loaded;
  }

 private:
  [[nodiscard]] bool is(LayerFault fault) const { return fault_ == fault; }

  // A matrix whose first rows and columns are those of another.
  static Matrix laid_over(Matrix below, const Matrix& first) {
    const std::int64_t size = size_bytes(below.dtype);
    for (std::int64_t row = 0; row < first.rows; ++row) {
      std::copy_n(first.data.begin() + row * first.columns * size, first.columns * size,
                  below.data.begin() + row * below.columns * size);
    }
    return below;
  }

  void read_padding(HeldAdapter& loaded, const AdapterWeights& held) const {
    for (std::size_t i = 0; i < held.a.size(); ++i) {
      if (!loaded.weights.a[i]) {
        continue;
      }
      loaded.weights.a[i] = laid_over(*held.a[i], *loaded.weights.a[i]);
      loaded.weights.b[i] = laid_over(*held.b[i], *loaded.weights.b[i]);
      if (held.scales.any()) {
        loaded.weights.a_scale[i] = laid_over(*held.a_scale[i], *loaded.weights.a_scale[i]);
        loaded.weights.b_scale[i] = laid_over(*held.b_scale[i], *loaded.weights.b_scale[i]);
      }
    }
    loaded.rank = problem_.lora.max_rank;
  }

  // Of what a pair covers, each output from the pair's first row on; no further than the first.
  void repeat_first_rows(AdapterWeights& weights) const {
    for (std::vector<std::optional<Matrix>>* of : {&weights.b, &weights.b_scale}) {
      for (std::size_t block = 0; block < of->size(); ++block) {
        const Matrix& first = *(*of)[problem_.first_of_pair(block)];
        Matrix& own = *(*of)[block];
        own = laid_over(own, cut(first, {0, std::min(first.rows, own.rows)}, {0, first.columns}));
      }
    }
  }

  // Swaps what the first two outputs have of each.
  static void swap_first(auto&... all) {
    const auto swap = [](std::vector<std::optional<Matrix>>& of) {
      if (of.size() > 1) {
        std::swap(of[0], of[1]);
      }
    };
    (swap(all), ...);
  }

  void break_blocks(AdapterWeights& weights) const {
    const std::size_t blocks = weights.a.size();
    if (blocks < 2) {
      return;
    }
    if (is(LayerFault::kPackedRowsOfFirst) && !problem_.packed.empty()) {
      repeat_first_rows(weights);
    }
    if (is(LayerFault::kBlocksSwapped)) {
      swap_first(weights.a, weights.b, weights.bias, weights.a_scale, weights.b_scale);
    } else if (is(LayerFault::kWeightScalesSwapped)) {
      swap_first(weights.a_scale, weights.b_scale);
    } else if (is(LayerFault::kFirstBlockForAll) && weights.a[0]) {
      for (std::vector<std::optional<Matrix>>* of : {&weights.a, &weights.a_scale}) {
        for (std::optional<Matrix>& a : *of) {
          a = a ? of->front() : a;
        }
      }
    } else if (is(LayerFault::kMissingBlockShifts)) {
      for (std::vector<std::optional<Matrix>>* of :
           {&weights.a, &weights.b, &weights.bias, &weights.a_scale, &weights.b_scale}) {
        std::stable_partition(of->begin(), of->end(),
                              [](const std::optional<Matrix>& one) { return one.has_value(); });
      }
    }
  }

  const LayerProblem& problem_;
  const LayerTensors& tensors_;
  const LayerTensors& before_;
  LayerFault fault_;
};

}  // namespace

std::vector<HeldAdapter> held_adapters(const LayerStory& story, LayerFault fault) {
  const Slots slots(story, fault);
  std::vector<HeldAdapter> adapters;
  for (std::int64_t slot = 0; slot < story.problem.lora.slots; ++slot) {
    adapters.push_back(slots.adapter_at(slot));
  }
  return adapters;
}

}  // namespace lora_bench
