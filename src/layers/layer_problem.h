#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "device/memory.h"
#include "layers/shard.h"
#include "ops/backend.h"
#include "scenario/scenario.h"
#include "workload/metadata.h"
#include "workload/problem.h"
#include "workload/quantise.h"

namespace lora_bench {

struct ShardProblem;

// One step of a whole layer: y [M, N] = x W^T + bias, and to it what the adapters add.
struct LayerProblem {
  ShardedLayer layer;
  Problem lora;                           // of the whole layer, op linear: a width for each A and B
  bool base_bias = false;                 // the base layer has one
  bool skip_bias_add = false;             // ... which is not added but returned apart
  bool bias_in_product = false;           // the base product adds it itself, and a delta
  bool missing_slices = false;            // see lacks_block
  std::vector<std::int64_t> packed = {};  // blocks that each pair of an adapter covers, in turn
  std::vector<std::vector<std::int64_t>> missing = {};  // blocks that each slot in turn lacks
  Overlap overlap = Overlap::kSerial;                   // never kAuto
  // Of logits: y = scale * cap * tanh(y / cap) at the end; no cap where it is 0.
  float soft_cap = 0, logit_scale = 1;

  [[nodiscard]] bool adds_bias() const {
    return base_bias && !skip_bias_add && !description_of(layer.kind).looks_up;
  }
  [[nodiscard]] bool caps() const { return soft_cap > 0 || logit_scale != 1; }
  [[nodiscard]] std::int64_t columns() const;  // of the whole y
  // Of the base product: that of x for all, whatever A and B of the adapters have.
  [[nodiscard]] OperandDtypes dtype_of_base() const;
  // Of layers that look up: the column of the whole W, and of A as the oracle has it, that an id of
  // a row stands for. Behind the vocabulary are the rows that each adapter adds, slot by slot.
  [[nodiscard]] std::int64_t whole_id(std::int64_t row, std::int64_t id) const;
  // The first block that the pair covers which covers this one.
  [[nodiscard]] std::size_t first_of_pair(std::size_t block) const;
  // Whether the adapter of a slot has no A and B for a block: as `missing` says, or with
  // `missing_slices` each slot another one, some none.
  [[nodiscard]] bool lacks_block(std::int64_t slot, std::size_t block) const;
};

// The layer's own sizes make the LoRA part: `lora` brings dtypes, tokens, slots, ranks and the
// plan.
[[nodiscard]] LayerProblem make_layer_problem(const ShardedLayer& layer, Problem lora);

// What `auto` takes for shards that lie in memory of that space, all in one; `asked` where it is
// not auto. `base`: what makes the base products there. `may_fuse`: whether it may make the
// adapters' part in the place of their backend.
[[nodiscard]] Overlap chosen_overlap(Overlap asked, const LayerProblem& problem,
                                     const Backend& base, bool may_fuse = true);
// What is declared of the adapters' part: by their backend, or by the base that adds it.
[[nodiscard]] Numerics numerics_of_adapters(const LayerProblem& problem, const ShardProblem& part,
                                            const Backend& base, const Backend& lora);
// Why the base's launch cannot make the adapters' part of every shard, "" when it can.
[[nodiscard]] std::string why_not_fused(const LayerProblem& problem, const Backend& base);
// Whether part of the layer is enqueued on a second stream.
[[nodiscard]] bool runs_beside(Overlap overlap);

// What a case computes in one step: an op, a layer whose adapters' part that op is, metadata of the
// batch that it has, or an x of eight bits.
struct CaseStep {
  Problem op;
  std::optional<LayerProblem> layer;
  std::optional<MetadataStep> metadata = {};
  std::optional<QuantiseStep> quantise = {};
};
[[nodiscard]] CaseStep step_of(const Case& spec);

// The layer of a case, as it is divided.
[[nodiscard]] ShardedLayer sharded_layer(const Case& spec);

// What the kind or the division of a case's layer rules out, with what would do. For LoadOptions.
[[nodiscard]] std::optional<SettingFault> layer_fault(const Case& spec);

// Why it is not run so, "" when it is.
[[nodiscard]] std::optional<SettingFault> overlap_fault(const ShardedLayer& layer, Comm comm,
                                                        Overlap overlap);
[[nodiscard]] std::string why_not_overlapped(const ShardedLayer& layer, Comm comm, Overlap overlap);

// What one shard computes: the base, then either LoRA in one go or, where h is exchanged in
// between, its two halves. Then y is exchanged.
struct ShardProblem {
  Shard shard;
  // The base product is the shrink of one adapter whose A is W: its h is y. Where the product adds
  // the bias, its `bias` is set.
  Problem base;
  std::optional<Problem> base_on_delta;  // the same product, which adds the delta itself
  Problem lora;                   // op linear, or shrink, or where ids are looked up embedding
  std::optional<Problem> expand;  // from the h of all shards, or of this one
  bool delta_apart = false;       // `lora` overwrites a delta and leaves y alone
  bool base_apart = false;  // the base product ends in fp32; what it does not add is added after it
  Exchange h = Exchange::kNone, y = Exchange::kNone;
  // Where it does not, what the shard has of y goes to another, and nothing comes after that.
  bool ends_here = true;
  // What the adapters add they add to the whole y, after it was exchanged.
  bool lora_after_y = false;
  bool looks_up = false;
  bool adds_bias = false;    // of a sum of terms the first alone
  bool input_split = false;  // x has the shard's columns alone
  // Elements behind each row of x and W that are neither's: a fused launch writes there.
  std::int64_t room = 0;
};
[[nodiscard]] ShardProblem shard_problem(const LayerProblem& problem, std::int64_t rank);

// What a shard must send of a result that is exchanged, however that is done: gathered, its part to
// all others or, of logits, to the first; summed, all but its share once to add it up and once to
// hand the sums out.
struct ExchangedBytes {
  std::int64_t h = 0, y = 0;
};
[[nodiscard]] ExchangedBytes exchanged_bytes(const LayerProblem& problem);

// Of each column that a shard computes: its column in the whole y, which is its row in the whole W.
[[nodiscard]] std::vector<std::int64_t> columns_of_shard(const ShardedLayer& layer,
                                                         const Shard& shard);
// Of each column of what shard `rank` ends with: its column in the whole y.
[[nodiscard]] std::vector<std::int64_t> columns_of_output(const ShardedLayer& layer,
                                                          std::int64_t rank);

// Rank of an adapter in a shard that has only the lanes of `lanes`.
[[nodiscard]] std::int64_t rank_in(const IndexRange& lanes, std::int64_t rank);

}  // namespace lora_bench
